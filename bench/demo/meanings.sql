-- What wait events mean to a DBA: the first line whose pattern matches "type:event", in lower case since 17 writes some
-- names differently. "what" ends a line of at most 100 columns; events with a remedy appear in the conclusions.
CREATE TEMP TABLE meaning (rank serial, pattern text, what text, remedy text);
INSERT INTO meaning (pattern, what, remedy) VALUES
    ('^cpu', '(running, or ready to run)', NULL),
    ('^lock:(transactionid|tuple)$', 'a row that another one has changed',
     'A row is held until the commit: more CPUs do not help; shorter transactions, faster commits and hot rows that are '
     'split into several do.'),
    ('^lock:extend|^io:datafileextend', 'a table to be made longer',
     'Many sessions insert into the same table: partitions spread them.'),
    ('^lock:(relation|page|object)$', 'a table that another one locked',
     'Find the statement that takes the strong lock, and give it a lock_timeout.'),
    ('^lock', 'a lock that another one holds', 'pg_blocking_pids() tells who holds it.'),
    ('^(io|lwlock):wal(sync|write)', 'the WAL to reach the disk',
     'That is the price of commits: larger transactions, commit_delay, a faster disk for pg_wal, or '
     'synchronous_commit = off where the last moment may be lost.'),
    ('^lwlock:walinsert|^lwlock:walbuf', 'room in the WAL buffers', 'Look at wal_buffers.'),
    ('^lwlock:lockmanager', 'the lock table''s own locks',
     'Too many sessions queue for the same few locks, or statements lock very many tables and partitions.'),
    ('^lwlock:buffercontent|^bufferpin', 'a page that others are using',
     'Many sessions change the same few pages: a lower fillfactor spreads the rows.'),
    ('^lwlock:buffermapping', 'the list of cached pages', 'Pages come and go: look at shared_buffers.'),
    ('^io:datafile(read|prefetch)|^(io|ipc):aio|^ipc:bufferio', 'data that is not cached',
     'Look at shared_buffers, and whether an index would spare the queries above their reads.'),
    ('^io:datafile', 'data files to be written', 'Let the bgwriter and the checkpointer do more of it.'),
    ('^io:buffile', 'temporary files', 'Look at work_mem for the queries above.'),
    ('^(lwlock|ipc):(procarray|xid|xactgroup)', 'snapshots, and ends of transactions',
     'Fewer connections at a time, through a pool, would help.'),
    ('^lwlock:.*(slru|subtrans|multixact|xact|notify)', 'the status of other transactions',
     'Look at savepoints, foreign keys, and very long transactions.'),
    ('^ipc:(bgworker|parallel|execute|messagequeue|btreepage|hash|append)', 'the others of its parallel query',
     'Look at whether the parallel queries above gain by their workers.'),
    ('^client', 'its client', 'The client or the network is slower than the server.'),
    ('^(timeout|extension)', '(a pause of its own)', NULL),
    ('', '(see "Wait Events" in the manual)', NULL);
