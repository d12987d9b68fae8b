-- Counts of the sweeper.

CREATE FUNCTION pgscale_internal.sweeper_stats(
    OUT writers integer, OUT state text, OUT reason text, OUT state_change timestamptz,
    OUT low_watermark integer, OUT high_watermark integer, OUT ready integer,
    OUT ticks bigint, OUT scanned bigint, OUT decremented bigint,
    OUT supplied_clean bigint, OUT supplied_written bigint,
    OUT consumed bigint, OUT reused bigint, OUT queued bigint, OUT starved bigint,
    OUT runs bigint, OUT runs_by_pages bigint[],
    OUT written bigint, OUT neighbours bigint,
    OUT skipped_pinned bigint, OUT skipped_locked bigint,
    OUT skipped_wal bigint, OUT skipped_changed bigint,
    OUT write_ms double precision,
    OUT writeback_calls bigint, OUT writeback_ms double precision,
    OUT wal_flushes bigint, OUT errors bigint, OUT backend_writes bigint,
    OUT cpu_ms double precision, OUT writer_cpu_ms double precision,
    OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_sweeper_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.sweeper_stats() IS 'the row of pgscale.sweeper_stats';
GRANT EXECUTE ON FUNCTION pgscale_internal.sweeper_stats() TO pg_monitor;

CREATE VIEW pgscale.sweeper_stats AS
    SELECT state, ready, consumed, starved, written, runs, round(write_ms * 10) / 10 AS write_ms,
           backend_writes, writers, low_watermark, high_watermark, ticks, scanned, decremented,
           supplied_clean, supplied_written, reused, queued, neighbours, skipped_pinned, skipped_locked,
           skipped_wal, skipped_changed, writeback_calls, round(writeback_ms * 10) / 10 AS writeback_ms,
           wal_flushes, errors, round(cpu_ms * 10) / 10 AS cpu_ms,
           round(writer_cpu_ms * 10) / 10 AS writer_cpu_ms, runs_by_pages, state_change, stats_reset, reason
      FROM pgscale_internal.sweeper_stats();
COMMENT ON VIEW pgscale.sweeper_stats IS
'one row: state of the sweeper and the reason, its supply, its writes and its cost; counts since stats_reset. Without preload: object_not_in_prerequisite_state';
GRANT SELECT ON pgscale.sweeper_stats TO pg_monitor;
COMMENT ON COLUMN pgscale.sweeper_stats.state IS 'off; warming up: some buffers were never used; watching; working';
COMMENT ON COLUMN pgscale.sweeper_stats.ready IS
'number of clean buffers ready now, including those used since the server''s clock hand last passed them';
COMMENT ON COLUMN pgscale.sweeper_stats.consumed IS 'number of ready buffers that backends took';
COMMENT ON COLUMN pgscale.sweeper_stats.starved IS
'number of ticks at work that found no buffer ready, or for which dirty buffers had to be yielded';
COMMENT ON COLUMN pgscale.sweeper_stats.written IS 'number of pages written';
COMMENT ON COLUMN pgscale.sweeper_stats.runs IS 'number of runs of neighbouring pages written';
COMMENT ON COLUMN pgscale.sweeper_stats.write_ms IS 'time of writes, summed over all writers, in milliseconds';
COMMENT ON COLUMN pgscale.sweeper_stats.backend_writes IS
'number of pages that backends and recovery wrote themselves, on the whole server; on 15 with extensions of files';
COMMENT ON COLUMN pgscale.sweeper_stats.writers IS 'present number of its writers';
COMMENT ON COLUMN pgscale.sweeper_stats.low_watermark IS 'number of ready buffers below which it refills; NULL while it is off';
COMMENT ON COLUMN pgscale.sweeper_stats.high_watermark IS 'number of ready buffers up to which it refills; NULL while it is off';
COMMENT ON COLUMN pgscale.sweeper_stats.ticks IS 'number of rounds: 250 per second under much demand, down to 62 under little, 20 without, 10 while it watches';
COMMENT ON COLUMN pgscale.sweeper_stats.scanned IS 'number of buffers that its hand passed';
COMMENT ON COLUMN pgscale.sweeper_stats.decremented IS
'number of used buffers that it passed: it took the rank of the page down, or noted the second chance';
COMMENT ON COLUMN pgscale.sweeper_stats.supplied_clean IS 'number of clean buffers made ready';
COMMENT ON COLUMN pgscale.sweeper_stats.supplied_written IS 'number of buffers made ready after a write';
COMMENT ON COLUMN pgscale.sweeper_stats.reused IS 'number of ready buffers that were used again for their old page, which was kept';
COMMENT ON COLUMN pgscale.sweeper_stats.queued IS 'number of dirty victims that became candidates to be written';
COMMENT ON COLUMN pgscale.sweeper_stats.neighbours IS 'number of pages written that were not victims themselves';
COMMENT ON COLUMN pgscale.sweeper_stats.skipped_pinned IS 'number of pages left out because a process waits for the only pin';
COMMENT ON COLUMN pgscale.sweeper_stats.skipped_locked IS 'number of pages left out because they were locked or in I/O';
COMMENT ON COLUMN pgscale.sweeper_stats.skipped_wal IS
'number of pages left out because their WAL was not on disk or, for a damaged page, is beyond the end of WAL';
COMMENT ON COLUMN pgscale.sweeper_stats.skipped_changed IS 'number of pages left out because they had become clean or were evicted';
COMMENT ON COLUMN pgscale.sweeper_stats.writeback_calls IS 'number of requests to the kernel to start writing a run';
COMMENT ON COLUMN pgscale.sweeper_stats.writeback_ms IS 'time spent in these requests, in milliseconds';
COMMENT ON COLUMN pgscale.sweeper_stats.wal_flushes IS 'number of WAL flushes for pages that had been left out';
COMMENT ON COLUMN pgscale.sweeper_stats.errors IS 'number of rounds that ended in an error; the server log shows the errors';
COMMENT ON COLUMN pgscale.sweeper_stats.cpu_ms IS 'CPU time of the sweeper, in milliseconds';
COMMENT ON COLUMN pgscale.sweeper_stats.writer_cpu_ms IS 'CPU time of its writers, in milliseconds';
COMMENT ON COLUMN pgscale.sweeper_stats.runs_by_pages IS 'number of runs of 1, 2, up to 4, 8, 16, 32, 64 pages, and more';
COMMENT ON COLUMN pgscale.sweeper_stats.state_change IS 'time when state or reason last changed; NULL if it was never on';
COMMENT ON COLUMN pgscale.sweeper_stats.stats_reset IS 'start of the counts';
COMMENT ON COLUMN pgscale.sweeper_stats.reason IS 'why it is in that state, in one sentence';

-- What its policy has seen and chosen.

CREATE FUNCTION pgscale_internal.replacement_stats(
    OUT choice text, OUT evictions bigint, OUT reads_saved bigint, OUT reads_saved_low bigint, OUT reads_saved_high bigint,
    OUT switches bigint, OUT shadow_references bigint, OUT shadow_misses bigint[], OUT chosen_misses bigint,
    OUT half_lives double precision[], OUT shadow_sample bigint,
    OUT expected_reads double precision, OUT served_fraction double precision, OUT fallbacks bigint,
    OUT observed bigint, OUT unobserved bigint,
    OUT restored bigint, OUT restore_problem text, OUT memory_bytes bigint, OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_replacement_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.replacement_stats() IS 'the row of pgscale.replacement_stats';
GRANT EXECUTE ON FUNCTION pgscale_internal.replacement_stats() TO pg_monitor;

CREATE VIEW pgscale.replacement_stats AS
    SELECT r.choice, round(r.expected_reads * 1000) / 1000 + 0 AS expected_reads, r.evictions, r.reads_saved,
           r.reads_saved_low, r.reads_saved_high, r.switches, round(r.served_fraction * 10000) / 10000 AS served_fraction,
           r.fallbacks, r.shadow_references, r.shadow_misses, r.chosen_misses, r.half_lives, r.shadow_sample, r.observed, r.unobserved,
           r.restored, r.restore_problem, r.memory_bytes, r.stats_reset
      FROM pgscale_internal.replacement_stats() r;
COMMENT ON VIEW pgscale.replacement_stats IS
'one row: how the sweeper chooses the pages to evict, and what other choices would have missed. Counts include the time in which it only watches, and are NULL if it was never on';
GRANT SELECT ON pgscale.replacement_stats TO pg_monitor;
COMMENT ON COLUMN pgscale.replacement_stats.choice IS
'choice in force: clock, or half-life N: a use counts half after N evictions for each buffer; clock while the sweeper only watches, or sessions wait for writes and hardly for reads';
COMMENT ON COLUMN pgscale.replacement_stats.expected_reads IS
'fraction by which the best half-life would change the clock''s reads, -1 to 0; NULL until known, or if the sweeper sees too little';
COMMENT ON COLUMN pgscale.replacement_stats.evictions IS 'number of evicted pages, as far as the sweeper saw';
COMMENT ON COLUMN pgscale.replacement_stats.reads_saved IS
'estimated number of reads that the clock would have made in addition; NULL until 1,000 misses were seen';
COMMENT ON COLUMN pgscale.replacement_stats.reads_saved_low IS
'lower end of the 95 % interval of that estimate (Cochran, Sampling Techniques, 1977); NULL as reads_saved, and with fewer than 256 buffers';
COMMENT ON COLUMN pgscale.replacement_stats.reads_saved_high IS
'upper end of that interval, which does not cover how a shadow cache differs from the real one';
COMMENT ON COLUMN pgscale.replacement_stats.switches IS
'number of times that another choice was made; the server log has each at level DEBUG1';
COMMENT ON COLUMN pgscale.replacement_stats.served_fraction IS
'fraction of the buffers taken on the whole server while the sweeper worked that it had made ready; NULL if none was taken';
COMMENT ON COLUMN pgscale.replacement_stats.fallbacks IS
'number of the others, on the whole server: the server''s own clock sweep found them, or they had become empty, as by DROP TABLE';
COMMENT ON COLUMN pgscale.replacement_stats.shadow_references IS 'number of references to the pages in the sample of the shadow caches';
COMMENT ON COLUMN pgscale.replacement_stats.shadow_misses IS 'number of these that each shadow cache missed, in the order of half_lives';
COMMENT ON COLUMN pgscale.replacement_stats.chosen_misses IS 'number of these that the shadow cache of the choice in force missed';
COMMENT ON COLUMN pgscale.replacement_stats.half_lives IS
'half-lives of the shadow caches, in evictions for each buffer; 0 is the clock';
COMMENT ON COLUMN pgscale.replacement_stats.shadow_sample IS 'one page in that many is in the sample';
COMMENT ON COLUMN pgscale.replacement_stats.observed IS
'number of buffers that it read after the server''s clock hand had passed, while it only watched';
COMMENT ON COLUMN pgscale.replacement_stats.unobserved IS
'number of buffers that the hand passed in pauses of the sweeper, counted when a pause ends';
COMMENT ON COLUMN pgscale.replacement_stats.restored IS 'number of pages that it remembers from before it last started';
COMMENT ON COLUMN pgscale.replacement_stats.restore_problem IS
'why the file with these pages was ignored; NULL if it was not, or if there was none';
COMMENT ON COLUMN pgscale.replacement_stats.memory_bytes IS
'dynamic shared memory that the sweeper takes while it is on';
COMMENT ON COLUMN pgscale.replacement_stats.stats_reset IS 'start of the counts';

-- Relations whose pages it ranks higher.

CREATE FUNCTION pgscale.keep(relation regclass, fraction double precision DEFAULT 0.05)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_keep'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.keep(regclass, double precision) IS
'makes the sweeper keep pages of a relation in shared buffers, and returns up to how many. At once, not undone by ROLLBACK, also on a standby. For superusers, and owners with EXECUTE. Errors: wrong_object_type for other kinds, partitioned tables, temporary relations and catalogs; insufficient_privilege; undefined_table; null_value_not_allowed; configuration_limit_exceeded beyond 64 relations or half of the buffers in all; object_not_in_prerequisite_state without preload, or if the transaction created the relation. After an error of the file system nothing has changed
relation: table, index, materialized view or TOAST table
fraction: part of shared_buffers; 0 or NULL takes the relation back; below 0, above 0.5, or less than a buffer: invalid_parameter_value';

CREATE FUNCTION pgscale_internal.kept_relations(
    OUT datid oid, OUT relation_oid oid, OUT name name, OUT relfilenode oid, OUT fraction double precision,
    OUT buffers_allowed bigint, OUT buffers_held bigint, OUT stayed bigint, OUT state text, OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_kept_relations'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.kept_relations() IS 'the rows of pgscale.kept_relations';
GRANT EXECUTE ON FUNCTION pgscale_internal.kept_relations() TO pg_monitor;

CREATE VIEW pgscale.kept_relations AS
    SELECT coalesce(pgscale_internal.foreign_name(d.datname)::text, k.datid::text) AS datname,
           CASE WHEN d.datname = current_database() THEN k.relation_oid::regclass::text
                ELSE pgscale_internal.foreign_name(k.name)::text END AS relation,
           k.fraction, k.buffers_allowed, k.buffers_held, k.stayed, k.state, k.relation_oid, k.relfilenode,
           k.stats_reset
      FROM pgscale_internal.kept_relations() k
      LEFT JOIN pg_catalog.pg_database d ON d.oid = k.datid;
COMMENT ON VIEW pgscale.kept_relations IS
'one row for each relation that pgscale.keep() keeps, of all databases; without preload: object_not_in_prerequisite_state';
GRANT SELECT ON pgscale.kept_relations TO pg_monitor;
COMMENT ON COLUMN pgscale.kept_relations.datname IS 'name of its database; its OID if that was dropped';
COMMENT ON COLUMN pgscale.kept_relations.relation IS
'name of the relation; in another database without its schema, and as last seen';
COMMENT ON COLUMN pgscale.kept_relations.fraction IS 'fraction of shared_buffers that keep() was called with';
COMMENT ON COLUMN pgscale.kept_relations.buffers_allowed IS 'that fraction as a number of buffers, rounded down';
COMMENT ON COLUMN pgscale.kept_relations.buffers_held IS
'number of its buffers that the sweeper met in its last lap, kept or not; NULL before the first lap since its file changed';
COMMENT ON COLUMN pgscale.kept_relations.stayed IS 'number of times that a page of it was kept that would have been evicted';
COMMENT ON COLUMN pgscale.kept_relations.state IS
'in force, or why it has no effect: the sweeper does not work, the file is empty or not found yet, or the database was dropped';
COMMENT ON COLUMN pgscale.kept_relations.relation_oid IS 'OID of the relation in its database';
COMMENT ON COLUMN pgscale.kept_relations.relfilenode IS 'number of its file; NULL if not known yet';
COMMENT ON COLUMN pgscale.kept_relations.stats_reset IS
'start of the count stayed: the start of the server, the call of keep(), or a reset';
