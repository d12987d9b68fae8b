"""What is kept of a run: a summary that a person can read and compare, and that tables and pages are made of.

A list of records, one a measurement, becomes one entry a case. Of each figure it has the median, the least and the
greatest, and each round's value, from which ratios and intervals are computed again. A figure that was the same in all
rounds is just that. What nothing shown rests on is left out: it is in the raw results, which the command makes again.

    {"machine": {...}, "load before": 2.7, "results": {"runs": {"by": ["variant"], "counted": "round", "cases": [
      {"variant": "stock", "n": 3,
       "tps": {"median": 582.1, "least": 558.9, "greatest": 586.2, "each": [582.1, 558.9, 586.2]}, ...
"""
import json
import statistics

DIGITS = 9      # significant ones
WIDTH = 150
SMALL = 40      # characters of what shares a line
COUNTED = ("round", "pair")


def summarise(part, results):
    """Of a part's results. It may name lists of records and the fields that make a case: RECORDS = {name: fields}, with the
    name "" if all is one list; what is LEFT_OUT, by name; and have a summarise(results) of its own, which comes first.
    """
    if hasattr(part, "summarise"):
        results = part.summarise(results)
    results = _plain(results, getattr(part, "LEFT_OUT", ()))
    if results is None:         # not to be measured on that server
        return None
    for name, fields in getattr(part, "RECORDS", {}).items():
        if name:
            results[name] = _grouped(results[name], fields)
        else:
            results = _grouped(results, fields)
    return results


def restored(summary):
    """The results again, as show() and required() take them."""
    if isinstance(summary, list):
        return [restored(each) for each in summary]
    if not isinstance(summary, dict):
        return summary
    if "cases" in summary and "by" in summary:
        return [record for case in summary["cases"] for record in _records(case, summary)]
    return {name: restored(each) for name, each in summary.items()}


def _plain(value, left_out):
    """As JSON has it, with numbers rounded."""
    if isinstance(value, dict):
        return {str(name): _plain(each, left_out) for name, each in value.items() if name not in left_out}
    if isinstance(value, (list, tuple)):
        return [_plain(each, left_out) for each in value]
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        return value if value == int(value) and abs(value) < 2**53 else float(f"{value:.{DIGITS}g}")
    return value


def _grouped(records, fields):
    cases = {}
    for record in records:
        cases.setdefault(tuple(record[field] for field in fields), []).append(record)
    counted = next((name for name in COUNTED if name in records[0] and name not in fields), None)
    found = []
    for case, mine in cases.items():
        names = dict.fromkeys(name for record in mine for name in record if name not in fields)
        entry = {**dict(zip(fields, case)), "n": len(mine)}
        for name in names:
            values = [record.get(name) for record in mine]
            if name != counted or values != list(range(len(mine))):
                entry[name] = _column(values)
        found.append(entry)
    return {"by": list(fields), **({"counted": counted} if counted else {}), "cases": found}


def _column(values):
    first = values[0]
    if not isinstance(first, (dict, list)) and all(value == first and type(value) is type(first) for value in values):
        return first
    if all(isinstance(value, dict) and value and value.keys() == first.keys() for value in values):
        return {"of": {name: _column([value[name] for value in values]) for name in first}}
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return {"median": _plain(statistics.median(map(float, values)), ()), "least": min(values), "greatest": max(values),
                "each": values}
    return {"each": values}


def _records(case, group):
    for number in range(case["n"]):
        record = {name: _value(column, number) for name, column in case.items() if name != "n"}
        if "counted" in group:
            record.setdefault(group["counted"], number)
        yield record


def _value(column, number):
    if not isinstance(column, dict):
        return column
    if "of" in column:
        return {name: _value(each, number) for name, each in column["of"].items()}
    return column["each"][number]


def text(value, indent=""):
    """JSON for diff: each case of a list on one line, otherwise a figure a line, and small values as many as fit."""
    line = on_a_line(value)
    if not isinstance(value, (dict, list)) or len(indent) + len(line) <= WIDTH:
        return line
    inner = indent + " "
    if isinstance(value, dict):
        entries = [(f"{json.dumps(name, ensure_ascii=False)}: {text(each, inner)}", not isinstance(each, (dict, list)))
                   for name, each in value.items()]
    else:
        entries = [(entry, len(entry) <= SMALL) for entry in (on_a_line(each) if isinstance(each, dict) else text(each, inner)
                                                              for each in value)]
    lines, packing = [], False
    for entry, small in entries:
        if packing and small and len(lines[-1]) + len(entry) + 3 <= WIDTH:
            lines[-1] += f", {entry}"
        else:
            lines.append(inner + entry)
        packing = small
    return "[{"[isinstance(value, dict)] + "\n" + ",\n".join(lines) + "\n" + indent + "]}"[isinstance(value, dict)]


def on_a_line(value):
    return json.dumps(value, ensure_ascii=False)


def read(folder):
    """What is kept of a folder's parts; nothing if none was measured."""
    file = folder / "summary.json"
    return json.loads(file.read_text()) if file.exists() else {}


def write(folder, summaries):
    (folder / "summary.json").write_text(text(summaries) + "\n")
