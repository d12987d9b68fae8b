"""psql sessions, so that answers are shown as a reader would see them."""
import os
import subprocess

END = "end of the answer"


class Session:
    """with Session(server, "import") as session: answer = session.ask("SELECT 1;"), or send() and answer() later."""

    def __init__(self, server, application_name, user="postgres"):
        self.process = server.place.popen(
            ["psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-P", "footer=off", "-h", server.folder, "-p", server.port, "-U", user,
             "postgres"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PGAPPNAME": application_name})
        self.ask("")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def send(self, statement):
        self.process.stdin.write(f"{statement}\n\\echo {END}\n")
        self.process.stdin.flush()

    def answer(self):
        lines = []
        for line in self.process.stdout:
            if line.strip() == END:
                return "\n".join(lines).strip("\n")
            lines.append(line.rstrip())
        raise RuntimeError("psql ended:\n" + "\n".join(lines))

    def ask(self, statement):
        self.send(statement)
        return self.answer()


def rows(answer):
    """Of an answer that is a table: a dictionary a row, of texts."""
    head, _, *lines = ([cell.strip() for cell in line.split("|")] for line in answer.splitlines())
    return [dict(zip(head, line)) for line in lines]


def fences(statement, answer):
    """A statement and its answer, as the pages of doc/ have them."""
    return f"```sql\n{statement}\n```\n\n```text\n{answer}\n```\n"
