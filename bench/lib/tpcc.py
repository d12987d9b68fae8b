"""A load like TPC-C's: its nine tables, smaller, and its five transactions in their mix, as scripts for pgbench.

Not TPC-C: no keying and think times, no terminals, orders are filled beforehand, and figures of it are not to be compared with
those of others. Customers and items are chosen as clause 2.1.6 has it (NURand).
"""
WAREHOUSES = 2
ITEMS = 50000
CUSTOMERS = 3000
TABLES = ("warehouse", "district", "customer", "item", "stock", "orders", "new_order", "order_line", "history")


def setup(warehouses):
    """SQL that makes the tables: about 100 MB a warehouse."""
    return f"""
CREATE TABLE tpcc_warehouse (w int PRIMARY KEY, tax numeric, ytd numeric, filler char(60)) WITH (fillfactor = 50);
CREATE TABLE tpcc_district (w int, d int, tax numeric, ytd numeric, next_o int, filler char(60), PRIMARY KEY (w, d)) WITH (fillfactor = 50);
CREATE TABLE tpcc_customer (w int, d int, c int, balance numeric, paid numeric, payments int, filler char(450), PRIMARY KEY (w, d, c));
CREATE TABLE tpcc_item (i int PRIMARY KEY, price numeric, filler char(60));
CREATE TABLE tpcc_stock (w int, i int, quantity int, ytd int, orders int, filler char(280), PRIMARY KEY (w, i));
CREATE TABLE tpcc_orders (w int, d int, o int, c int, entered timestamptz, carrier int, lines int, PRIMARY KEY (w, d, o));
CREATE TABLE tpcc_new_order (w int, d int, o int, PRIMARY KEY (w, d, o));
CREATE TABLE tpcc_order_line (w int, d int, o int, n int, i int, quantity int, amount numeric, delivered timestamptz, filler char(24), PRIMARY KEY (w, d, o, n));
CREATE TABLE tpcc_history (w int, d int, c int, at timestamptz, amount numeric, filler char(24));
INSERT INTO tpcc_warehouse SELECT w, 0.1, 0, '' FROM generate_series(1, {warehouses}) w;
INSERT INTO tpcc_district SELECT w, d, 0.1, 0, {CUSTOMERS} + 1, '' FROM generate_series(1, {warehouses}) w, generate_series(1, 10) d;
INSERT INTO tpcc_customer SELECT w, d, c, 0, 0, 0, '' FROM generate_series(1, {warehouses}) w, generate_series(1, 10) d, generate_series(1, {CUSTOMERS}) c;
INSERT INTO tpcc_item SELECT i, 1 + i % 100, '' FROM generate_series(1, {ITEMS}) i;
INSERT INTO tpcc_stock SELECT w, i, 50, 0, 0, '' FROM generate_series(1, {warehouses}) w, generate_series(1, {ITEMS}) i;
INSERT INTO tpcc_orders SELECT w, d, o, 1 + o * 7919 % {CUSTOMERS}, now(), 1, 10 FROM generate_series(1, {warehouses}) w, generate_series(1, 10) d, generate_series(1, {CUSTOMERS}) o;
INSERT INTO tpcc_new_order SELECT w, d, o FROM generate_series(1, {warehouses}) w, generate_series(1, 10) d, generate_series({CUSTOMERS} * 7 / 10, {CUSTOMERS}) o;
INSERT INTO tpcc_order_line SELECT w, d, o, n, 1 + (o * 31 + n * 7919) % {ITEMS}, 5, 10, now(), ''
  FROM generate_series(1, {warehouses}) w, generate_series(1, 10) d, generate_series(1, {CUSTOMERS}) o, generate_series(1, 10) n;
CREATE INDEX ON tpcc_orders (w, d, c, o);
"""


_WAREHOUSE = "\\set w random(1, {warehouses})\n"
_WHO = _WAREHOUSE + f"""\\set d random(1, 10)
\\set c (random(0, 1023) | random(1, {CUSTOMERS})) % {CUSTOMERS} + 1
"""
_LINE = """\\set i{n} (random(0, 8191) | random(1, {items})) % {items} + 1
\\set q{n} random(1, 10)
"""
_ORDER_LINE = """UPDATE tpcc_stock SET quantity = CASE WHEN quantity > :q{n} + 10 THEN quantity - :q{n} ELSE quantity - :q{n} + 91 END, ytd = ytd + :q{n}, orders = orders + 1 WHERE w = :w AND i = :i{n};
INSERT INTO tpcc_order_line SELECT :w, :d, :o, {n}, i, :q{n}, price * :q{n}, NULL, '' FROM tpcc_item WHERE i = :i{n};
"""
_LINES = range(1, 11)

WEIGHTS = {"new_order": 45, "payment": 43, "order_status": 4, "delivery": 4, "stock_level": 4}
_SCRIPTS = {
    "new_order": _WHO + "".join(_LINE.format(n=n, items=ITEMS) for n in _LINES) + """BEGIN;
SELECT tax FROM tpcc_warehouse WHERE w = :w;
UPDATE tpcc_district SET next_o = next_o + 1 WHERE w = :w AND d = :d RETURNING next_o - 1 AS o \\gset
SELECT balance FROM tpcc_customer WHERE w = :w AND d = :d AND c = :c;
INSERT INTO tpcc_orders VALUES (:w, :d, :o, :c, now(), NULL, 10);
INSERT INTO tpcc_new_order VALUES (:w, :d, :o);
""" + "".join(_ORDER_LINE.format(n=n) for n in _LINES) + "COMMIT;\n",
    "payment": _WHO + """\\set amount random(1, 5000)
BEGIN;
UPDATE tpcc_warehouse SET ytd = ytd + :amount WHERE w = :w;
UPDATE tpcc_district SET ytd = ytd + :amount WHERE w = :w AND d = :d;
UPDATE tpcc_customer SET balance = balance - :amount, paid = paid + :amount, payments = payments + 1 WHERE w = :w AND d = :d AND c = :c;
INSERT INTO tpcc_history VALUES (:w, :d, :c, now(), :amount, '');
COMMIT;
""",
    "order_status": _WHO + """SELECT l.* FROM (SELECT w, d, o FROM tpcc_orders WHERE w = :w AND d = :d AND c = :c ORDER BY o DESC LIMIT 1) o JOIN tpcc_order_line l USING (w, d, o);
""",
    "delivery": _WAREHOUSE + """WITH oldest AS (
  SELECT w, d, o FROM generate_series(1, 10) d, LATERAL (SELECT w, o FROM tpcc_new_order n WHERE n.w = :w AND n.d = d.d ORDER BY o LIMIT 1) n),
gone AS (DELETE FROM tpcc_new_order n USING oldest o WHERE (n.w, n.d, n.o) = (o.w, o.d, o.o) RETURNING n.*),
carried AS (UPDATE tpcc_orders t SET carrier = 5 FROM gone g WHERE (t.w, t.d, t.o) = (g.w, g.d, g.o) RETURNING t.w, t.d, t.o, t.c),
lines AS (UPDATE tpcc_order_line l SET delivered = now() FROM gone g WHERE (l.w, l.d, l.o) = (g.w, g.d, g.o) RETURNING l.w, l.d, l.o, amount)
UPDATE tpcc_customer u SET balance = balance + s.amount FROM (SELECT w, d, c, sum(amount) AS amount FROM carried JOIN lines USING (w, d, o) GROUP BY w, d, c) s
 WHERE (u.w, u.d, u.c) = (s.w, s.d, s.c);
""",
    "stock_level": _WAREHOUSE + "\\set d random(1, 10)\n" + """SELECT count(DISTINCT s.i) FROM tpcc_district t
  JOIN tpcc_order_line l ON (l.w, l.d) = (t.w, t.d) AND l.o BETWEEN t.next_o - 20 AND t.next_o - 1
  JOIN tpcc_stock s ON (s.w, s.i) = (l.w, l.i) AND s.quantity < 15 WHERE t.w = :w AND t.d = :d;
""",
}


def scripts(warehouses):
    """For pgbench, by name; WEIGHTS has how often each is to run."""
    return {name: text.replace("{warehouses}", str(warehouses)) for name, text in _SCRIPTS.items()}


# with the number of warehouses that most experiments have
SETUP = setup(WAREHOUSES)
SCRIPTS = scripts(WAREHOUSES)
