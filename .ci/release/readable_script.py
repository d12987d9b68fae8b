"""readable_script.py SCRIPT: prints the script as pgspot can read it, and on stderr what it did to it.

Functions whose body is SQL itself (BEGIN ATOMIC, RETURN) are left out: their names are bound when they are created, in the search_path
of the script, so no search_path of a caller changes them. A body in PL/pgSQL that pgspot stops at, such as one with a composite argument
or an expression in RAISE ... USING, is emptied; whether the function has a search_path of its own is still checked. Variables of psql
become names.
"""
import argparse
import re
import sys

from pglast import ast, parse_sql
from pgspot.state import Counter, State
from pgspot.visitors import visit_sql

QUIET = argparse.Namespace(append=False, proc_without_search_path=[], summary_only=True, plpgsql=True, ignore=[], ignore_lang=[], sql_fn=[])

with open(sys.argv[1], encoding="utf-8") as script:
    text = script.read()
text = re.sub(r" *\\gset", ";", text)
text = re.sub(r"^\\", r"-- \\", text, flags=re.MULTILINE)
text = re.sub(r":'(\w+)'", r"'\1'", re.sub(r':"(\w+)"', r"\1", text))
raw = text.encode()
bound, emptied = 0, []


def readable(statement, function):
    """The statement, its body emptied if it cannot be read."""
    options = {option.defname: option.arg for option in function.options}
    if options["language"].sval == "plpgsql":
        try:
            visit_sql(State(Counter(QUIET)), statement)
        except Exception:
            emptied.append(function.funcname[-1].sval)
            return statement.replace(options["as"][0].sval, "BEGIN END")
    return statement


for each in parse_sql(text):
    end = each.stmt_location + each.stmt_len if each.stmt_len else len(raw)
    statement = raw[each.stmt_location:end].decode()
    if isinstance(each.stmt, ast.CreateFunctionStmt):
        if each.stmt.sql_body:
            bound += 1
            continue
        statement = readable(statement, each.stmt)
    print(statement + ";")
print(f"left out, since bound: {bound} functions; emptied: {', '.join(emptied) or 'none'}", file=sys.stderr)
