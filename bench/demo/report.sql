-- What pgscale knows of the load, for people; at most 100 columns wide, and pgscale.now 118. bench/demo/run sets the variables:
--   colour, unicode     true where the terminal can; bold, dim, plain: the codes, empty without colour
--   statements          true if pg_stat_statements is there
--   cpus, tps, latency  what the machine has, and what pgbench said
--   load_from, load_to, side_from, side_to, hold_from, hold_to     seconds of the epoch
\set ON_ERROR_STOP on
\pset pager off
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
-- parts: what follows a bar's last full block, from an eighth to seven eighths of one
\if :unicode
    \set block █
    \set parts ▏▎▍▌▋▊▉
    \set cut …
\else
    \set block '#'
    \set parts '   ####'
    \set cut ...
\endif

-- Taken first, so that all parts speak of the same time and the report does not count itself.
CREATE TEMP TABLE stats AS SELECT * FROM pgscale.sampler_stats;
CREATE TEMP TABLE second AS
    SELECT *, date_bin('3 s', at, to_timestamp(ceil(:load_from))) AS span
      FROM pgscale.activity(to_timestamp(:load_from), to_timestamp(:load_to), '1 second')
     WHERE at >= to_timestamp(:load_from) AND at + interval '1 second' <= to_timestamp(:load_to)
       AND event_type <> 'IdleInTransaction';
CREATE TEMP TABLE three_seconds AS
    SELECT span AS at, event_type, sum(active_sessions) / seconds AS active_sessions
      FROM second JOIN (SELECT span, count(DISTINCT at) AS seconds FROM second GROUP BY 1) s USING (span)
     GROUP BY 1, 2, seconds;
CREATE TEMP TABLE profile AS
    SELECT p.*, p.backend_type IN ('client backend', 'parallel worker') AND p.event <> 'IdleInTransaction' AS session,
           CASE WHEN p.event_type <> 'CPU' THEN p.event_type || ':' || p.event
                WHEN p.event ~ '^Queued' THEN 'CPU queue' ELSE 'CPU' END AS wait,
           coalesce(m.kind, 'pause') AS kind,
           CASE WHEN p.event_type <> 'CPU' THEN coalesce(m.what, '(a pause of its own)')
                WHEN p.event ~ '^Queued' THEN 'a CPU to run on' ELSE '(running)' END AS what, m.remedy
      FROM pgscale.wait_profile p
      LEFT JOIN pgscale.wait_meanings m ON m.kind = pgscale.wait_kind(p.event_type, p.event);
CREATE TEMP TABLE query (queryid bigint, calls bigint, counted_ms float8, text text);
\if :statements
    INSERT INTO query
        SELECT queryid, min(calls), min(total_time_ms), regexp_replace(min(query), '\s+', ' ', 'g')
          FROM pgscale.query_waits() WHERE calls IS NOT NULL GROUP BY queryid;
\endif
SELECT sum(wait_ms) FILTER (WHERE session) AS session_ms FROM profile \gset
SELECT observed_ms FROM stats \gset

---- now
\echo
\echo :bold'SELECT * FROM pgscale.now':plain', while nightly_report kept a row of pgbench_branches'
\echo
\! cat now.txt

---- 1
\echo
\echo :bold'1. ACTIVE SESSIONS':plain', on average of three seconds, by what they do'
\echo
CREATE TEMP TABLE class (pos serial, event_type text, letter text, sgr text);
INSERT INTO class (event_type, letter, sgr) VALUES
    ('CPU', 'C', '30;42'), ('IO', 'I', '97;44'), ('LWLock', 'W', '97;45'), ('Lock', 'L', '97;41'), ('IPC', 'P', '30;46'),
    ('Client', 'N', '30;43'), ('BufferPin', 'B', '30;47'), ('Buffer', 'B', '30;47'), ('Timeout', 'T', '30;47'), ('Extension', 'E', '30;47');
INSERT INTO class (event_type, letter, sgr)
    SELECT DISTINCT event_type, 'o', '30;47' FROM second WHERE event_type NOT IN (SELECT event_type FROM class);
CREATE FUNCTION pg_temp.paint(what text, sgr text, colour boolean) RETURNS text LANGUAGE sql AS
    $$ SELECT CASE WHEN colour AND what <> '' THEN e'\033[' || sgr || 'm' || what || e'\033[0m' ELSE what END $$;

-- scale: letters a session; step: sessions from one mark of the ruler to the next
SELECT max(n) AS top FROM (SELECT sum(active_sessions) AS n FROM three_seconds GROUP BY at) t \gset
SELECT max(k) AS scale FROM unnest('{20,10,5,4,3,2,1,0.5,0.2,0.1,0.05,0.02,0.01}'::float8[]) k WHERE k * :top <= 60 \gset
SELECT min(n) AS step FROM unnest('{1,5,10,50,100,500,1000}'::int[]) n WHERE n * :scale >= 6 \gset
SELECT '      time  sessions    ' || rtrim(string_agg(rpad(n::text, (:step * :scale)::int), '' ORDER BY n))
  FROM generate_series(0, floor(:top)::int, :step) n;
-- each class ends where the rounded sum up to it does, so that rounding does not add up over the classes
SELECT to_char(at, '  HH24:MI:SS') || to_char(sum(n), '9999990.0') || '    '
       || string_agg(pg_temp.paint(repeat(letter, (round(upto * :scale) - round((upto - n) * :scale))::int), sgr, :'colour'),
                     '' ORDER BY pos)
       || coalesce((SELECT ' <- ' || string_agg(mark, ', ' ORDER BY happened)
                      FROM (VALUES (:side_from, 'a report starts'), (:side_to, 'the report has ended'),
                                   (:hold_from, 'nightly_report keeps a row'), (:hold_to, 'it has committed')) m (happened, mark)
                     WHERE to_timestamp(happened) >= at AND to_timestamp(happened) < at + interval '3 s'), '')
  FROM (SELECT *, active_sessions AS n, sum(active_sessions) OVER (PARTITION BY at ORDER BY pos) AS upto
          FROM three_seconds JOIN class USING (event_type)) t
 GROUP BY at ORDER BY at;
SELECT '   average' || to_char(sum(n), '9999990.0') || '    '
       || string_agg(pg_temp.paint(letter, sgr, :'colour') || ' ' || event_type || to_char(n, '9990.0'),
                     '   ' ORDER BY pos)
          FILTER (WHERE round(n::numeric, 1) > 0)
  FROM (SELECT event_type, sum(active_sessions) / (SELECT count(DISTINCT at) FROM second) AS n
          FROM second GROUP BY 1) t JOIN class USING (event_type);
\echo
SELECT format('  The machine has %s CPU%s; pgbench got %s transactions a second through, %s ms each.',
              :cpus, CASE WHEN :cpus > 1 THEN 's' END, round(:tps), round(:latency, 1));

---- 2
\echo
\echo :bold'2. TOP WAITS':plain' of the sessions, without idle ones'
\echo
SELECT format('  %-24s%9s%10s  %-16s  %s', 'wait', 'sessions', 'share', '', 'they wait for');
SELECT format('  %-24s%9s%10s  %s  %s', wait, to_char(ms / :observed_ms, '99990.0'), to_char(100 * share, '990.0 %'),
              rpad(repeat(:'block', floor(16 * share)::int) || substr(:'parts', floor(128 * share)::int % 8, 1), 16), what)
  FROM (SELECT wait, what, sum(wait_ms) AS ms, sum(wait_ms) / :session_ms AS share
          FROM profile WHERE session GROUP BY wait, what) t
 ORDER BY ms DESC LIMIT 8;
SELECT format(e'\n  All waits together are %s sessions; besides, %s were idle in a transaction.',
              to_char(:session_ms / :observed_ms, 'FM9990.0'), to_char(idle_in_transaction_ms / :observed_ms, 'FM9990.0')) FROM stats;
SELECT '  The server''s own processes: '
       || coalesce(string_agg(format('%s %s %s s', backend_type, wait, to_char(ms / 1e3, 'FM9990.0')), ', ' ORDER BY ms DESC),
                   'hardly any wait') || '.'
  FROM (SELECT backend_type, wait, sum(wait_ms) AS ms FROM profile
         WHERE backend_type NOT IN ('client backend', 'parallel worker') GROUP BY backend_type, wait HAVING sum(wait_ms) >= 100 ORDER BY ms DESC LIMIT 2) t;

---- 3
\echo
\if :statements
\echo :bold'3. TOP QUERIES':plain': seconds that the sampler saw, and that pg_stat_statements counted'
\echo
CREATE TEMP TABLE top AS
    SELECT queryid, text, calls, counted_ms, sum(wait_ms) AS ms,
           coalesce(sum(wait_ms) FILTER (WHERE event_type = 'CPU'), 0) AS cpu_ms,
           coalesce(sum(wait_ms) FILTER (WHERE backend_type = 'parallel worker'), 0) AS workers_ms
      FROM profile JOIN query USING (queryid) WHERE session GROUP BY 1, 2, 3, 4;
\echo ' waiting  on CPU  counted    calls  ms/call  query, and where its time went'
SELECT format(e'%8s%8s%9s%9s%9s  %s\n         %s%s%s%s', to_char((ms - cpu_ms) / 1e3, '9990.0'),
              to_char(cpu_ms / 1e3, '9990.0'), to_char(counted_ms / 1e3, '99990.0'), calls, to_char(ms / calls, '9990.00'),
              CASE WHEN length(text) > 54 THEN left(text, 54 - length(:'cut')) || :'cut' ELSE text END, :'dim', waits,
              CASE WHEN workers_ms > 0
                   THEN format('; %s s of it in parallel workers', to_char(workers_ms / 1e3, 'FM9990.0')) END,
              :'plain')
  FROM top CROSS JOIN LATERAL
       (SELECT string_agg(wait || ' ' || round(100 * part / ms) || ' %', ', ' ORDER BY part DESC) AS waits
          FROM (SELECT wait, sum(wait_ms) AS part FROM profile p WHERE p.queryid = top.queryid AND session
                 GROUP BY wait ORDER BY part DESC LIMIT 3) w WHERE part >= 0.01 * ms) l
 ORDER BY ms DESC LIMIT 6;
SELECT e'\n  Without a query: ' || to_char(sum(wait_ms) / 1e3, 'FM9990.0') || ' s: between two statements, and before a statement has its identifier.'
  FROM profile WHERE session AND queryid IS NULL HAVING sum(wait_ms) > 0.001 * :session_ms;
\else
CREATE TEMP TABLE top (text text, counted_ms float8, ms float8, workers_ms float8);
\echo :bold'3. TOP QUERIES':plain' need pg_stat_statements, which is not installed here'
\endif

---- 4
\echo
\echo :bold'4. BLOCKERS':plain': whose row or lock the others waited for'
\echo
\echo '  root     application          they waited   it was idle in its transaction   most at a time'
SELECT format('  %-9s%-16s%14s s%28s %%%18s', root, application_name, to_char(waited_ms / 1e3, 'FM99990.0'),
              round((100 * idle_fraction)::numeric), max_waiters)
  FROM pgscale.blocker_profile WHERE root ~ '^[0-9]+$' LIMIT 1;
SELECT format(e'\n  Other waits for locks: %s s, too short for the server to look for their roots.', to_char(waited_ms / 1e3, 'FM99990.0'))
  FROM pgscale.blocker_profile WHERE root = 'not looked up';

---- 5
\echo
\echo :bold'5. ADVICE':plain': settings that cost time'
\echo
SELECT format('  %-16s%-10s -> %-10s saves %s %% of the sessions'' time; confidence %s; needs a %s', setting, current, recommended,
              round((100 * gain)::numeric), confidence, needs)
  FROM pgscale.advice WHERE setting IS NOT NULL;
\o | fold -s -w 95 | sed 's/ *$//; s/^/    /'
SELECT reason FROM pgscale.advice WHERE setting IS NOT NULL LIMIT 1;
\o
SELECT e'\n    CALL pgscale.apply(' || quote_literal(setting) || ', reload => true);      -- pgscale.revert() restores it'
  FROM pgscale.advice WHERE setting IS NOT NULL AND needs = 'reload' LIMIT 1;

---- 6
\echo
\echo :bold'6. WHAT THE SAMPLER COST':plain
\echo
SELECT format(e'  time      %s %% of one CPU; %s us a tick, %s us the longest\n'
              '  schedule  every %s ms: %s ticks, %s missed; half are less than %s ms late, 99 %% less than %s\n'
              '  memory    %s, of fixed size; %s of the profile''s %s entries in use',
              to_char(100 * cpu_fraction, 'FM990.00'), round(tick_mean_us), round(tick_max_us), period_ms, ticks, missed_ticks,
              to_char(lateness_p50_us / 1e3, 'FM990.00'), to_char(lateness_p99_us / 1e3, 'FM990.00'),
              (SELECT pg_size_pretty(sum(allocated_size)) FROM pg_shmem_allocations WHERE name LIKE 'pgscale %'),
              entries, current_setting('pgscale.sampler_profile_size'))
  FROM stats;
-- what does not work may have much to say
\o | fold -s -w 87 | sed 's/ *$//; s/^/            /; 1s/^ */  health    /'
SELECT format('%s: %s', feature,
              CASE WHEN state IN ('idle', 'working') THEN reason ELSE concat_ws('; ', state || ': ' || reason, action) END)
  FROM pgscale.health WHERE state NOT IN ('off', 'idle');
\o

---- the conclusions, as far as the numbers carry them
\echo
\echo :bold'WHAT IT MEANS':plain
\echo
\o | fold -s -w 95 | sed 's/ *$//; s/^[^-]/  &/; s/^/  /'
WITH kind AS
    (SELECT what, remedy, sum(wait_ms) AS ms FROM profile
      WHERE session AND kind NOT IN ('cpu', 'other', 'pause') GROUP BY what, remedy),
part AS
    (SELECT what, sum(ms) AS ms, sum(ms) / :session_ms AS share, (array_agg(remedy ORDER BY ms DESC))[1] AS remedy
       FROM kind GROUP BY what)
SELECT format('- %s %% of the sessions'' time, %s of %s active sessions, is waiting for %s%s. What helps: %s.', round(100 * share),
              to_char(ms / :observed_ms, 'FM9990.0'), to_char(:session_ms / :observed_ms, 'FM9990.0'), what,
              (SELECT format(', most of all in "%s"', CASE WHEN length(text) > 40 THEN left(text, 37) || '...' ELSE text END)
                 FROM profile p JOIN query USING (queryid)
                WHERE p.what = part.what AND session GROUP BY text ORDER BY sum(wait_ms) DESC LIMIT 1), remedy)
  FROM part WHERE share >= 0.1 ORDER BY ms DESC LIMIT 2;
SELECT CASE WHEN short > 0
            THEN format('- In %s of %s seconds more sessions wanted a CPU than there are: %s on %s CPUs at %s. '
                        'PostgreSQL has no wait event for the queue; the kernel counted %s %% of the sessions'' time in it.',
                        short, seconds, to_char(most, 'FM9990.0'), :cpus, to_char(at, 'HH24:MI:SS'), round(100 * queued / :session_ms))
            ELSE format('- CPU is not short: in no second there were more than %s sessions on %s CPUs.',
                        to_char(most, 'FM9990.0'), :cpus) END
  FROM (SELECT count(*) FILTER (WHERE active_sessions > :cpus) AS short, count(*) AS seconds, max(active_sessions) AS most,
               (array_agg(at ORDER BY active_sessions DESC))[1] AS at FROM second WHERE event_type = 'CPU') t,
       (SELECT coalesce(sum(wait_ms), 0) AS queued FROM profile WHERE session AND wait = 'CPU queue') q;
SELECT format('- pg_stat_statements counts %s s for "%s", and the sampler saw %s s: a commit reaches the disk after the '
              'statement that asked for it has been counted.',
              to_char(counted_ms / 1e3, 'FM9990.0'), text, to_char(ms / 1e3, 'FM9990.0'))
  FROM top WHERE text ~* '^(end|commit)' AND ms > 2 * counted_ms AND ms > 0.02 * :session_ms ORDER BY ms DESC LIMIT 1;
\o
\echo
\echo :bold'ON YOUR OWN SERVER':plain
\echo
\echo '  Add pgscale to shared_preload_libraries, beside what is there; restart; then, in psql:'
\echo
\echo '    CREATE EXTENSION pgscale;'
\echo '    SELECT * FROM pgscale.now;'
\echo
