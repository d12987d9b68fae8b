-- The report that runs beside the transactions for a while: the kind of query that somebody starts at noon.
SELECT a.bid, count(*), sum(a.abalance), sum(h.delta)
  FROM pgbench_accounts a LEFT JOIN pgbench_history h USING (aid)
 GROUP BY a.bid;
