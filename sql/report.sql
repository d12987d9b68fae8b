-- What a report is made of, and what it refuses. What it tells of a server with a load: see t/057_report.pl.
CREATE EXTENSION pgscale;
SELECT * FROM pgscale.health WHERE feature = 'report';
\pset format unaligned
\pset null '-'
\set SHOW_CONTEXT never

-- all parts, in both formats
SELECT line FROM regexp_split_to_table(pgscale.report(), '\n') WITH ORDINALITY l (line, n)
 WHERE line ~ '^(Period|In short|Active sessions|Top waits|Top queries|Who it was|Who was in the way|Advice|The period in numbers|Shared buffers|Sweeper|Writeback|WAL, checkpoints and standbys|Relocation|Scalability|Health of pgscale|Settings)$'
 ORDER BY n;
SELECT (regexp_matches(pgscale.report(format => 'html'), '<section id="(\w+)">', 'g'))[1] AS section;
SELECT (regexp_matches(pgscale.report_diff(now() - interval '2 h', now() - interval '1 h', now() - interval '1 h', now(), 'html'), '<section id="(\w+)">', 'g'))[1] AS section;
SELECT max(length(line)) <= 120 AS fits FROM regexp_split_to_table(pgscale.report(), '\n') line;
SELECT page ~ '^<!DOCTYPE html>\n<html lang="en">' AS begins, page ~ '</html>\n$' AS ends, page ~ '[^\x01-\x7f]' AS beyond_ascii,
       page ~* '<script|<img|<link|<iframe|\son\w+=|javascript:|url\(|@import|src=|href=' AS asks_for_more,
       page ~ $$<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">$$ AS policy
  FROM pgscale.report(format => 'html') page;

-- what is no period, or no format
SELECT pgscale.report(format => 'pdf');
SELECT pgscale.report(format => NULL);
SELECT pgscale.report(now() + interval '1 min');
SELECT pgscale.report(now(), now() - interval '1 s');
SELECT pgscale.report('2026-01-01', '2026-01-01');
SELECT pgscale.report('infinity');
SELECT pgscale.report(until => '-infinity');
SELECT pgscale.report(until => '1970-01-01');
SELECT pgscale.report_diff(now() - interval '1 h', now(), now(), now() - interval '1 h');
-- and what is one
SELECT pgscale.report(since, until) ~ 'Settings' AS made
  FROM (VALUES (now() - interval '10 years', NULL::timestamptz), ('-infinity', 'infinity'), (now() - interval '1 ms', now()),
               (now() - interval '1 us', NULL), (NULL, '2020-02-02'), ('0044-03-15 BC', now())) p (since, until);

-- a table, for psql and for a browser
\pset tuples_only on
SELECT pgscale.report_table(format, '{name,sessions,share,time,size,count,change,query}', '{name,number,share,ms,bytes,count,change,query}',
    array[['<b>&"x"</b>', '1.234', '0.4321', '12.34', '123456789', '1234567', '1.5', E'SELECT ''a''\n  FROM t -- <script>alert(1)</script>'],
          ['Infinity', 'Infinity', 'NaN', '-Infinity', '1e300', 'x', 'NaN', NULL],
          ['small', '0', '0', '0', '0', '-0.4', '-0.001', repeat('long ', 40)],
          ['large', '-12345.6', '1.7', '1e7', '1e13', '-1234567', '-12', '']])
  FROM unnest('{text,html}'::text[]) format;
SELECT pgscale.report_table('text', '{n,prose}', '{count,prose}', array[['1', repeat('a sentence of some length, ', 12)], ['2', repeat('x', 200)]]);
SELECT pgscale.report_table('text', '{"",""}', '{name,statement}', array[['apply', 'CALL pgscale.apply(''work_mem'', reload => true);']]);
SELECT pgscale.report_table('html', '{a}', '{name}', NULL) = '' AS empty;
SELECT length(pgscale.report_table('html', '{q}', '{query}', array[[repeat('<', 1000000)]]));
SELECT pgscale.report_table('text', '{a}', '{name}', array_agg(i::text)) ~ '\n  200\n  and 300 more\n$' FROM generate_series(1, 500) i;
SELECT pgscale.report_table('text', '{a,b}', '{name}', '{}');
SELECT pgscale.report_table('text', '{a}', '{picture}', '{}');
SELECT pgscale.report_table('text', '{a,b}', '{name,name}', '{x}');
SELECT pgscale.report_table('text', '{}', '{}', '{}');

-- paragraphs
SELECT pgscale.report_paragraph(format, 'A <title> & "more"', style)
  FROM unnest('{text,html}'::text[]) format, unnest('{title,part,list,note,missing,""}'::text[]) style;
SELECT pgscale.report_paragraph('text', repeat('words and words and ', 12), '');
SELECT pgscale.report_paragraph('html', NULL, 'note') = '' AS nothing;

-- texts: control characters, direction, width, length
SELECT pgscale.report_clean(E'a\tb\x01c\x7fd\ne', 100);
SELECT pgscale.report_clean(U&'left\202Eright \200B\FEFF \0085 \FFFE \E0041 \FDD0', 100);
SELECT pgscale.report_clean('abcdef', 3), pgscale.report_clean('abc', 3), pgscale.report_clean('', 3), pgscale.report_clean(U&'\00E9\20AC\+01F600', 2);
SELECT pgscale.report_clean('a', -1);
SELECT pgscale.report_paragraph('html', U&'\00E9\20AC\+01F600', '');
SELECT pgscale.report_table('text', '{a,b}', '{name,name}', array[[U&'\6F22\5B57', 'x'], [U&'e\0301', 'y'], ['abcd', 'z']]);

-- passwords
SELECT pgscale.report_statement(query)
  FROM unnest(array['ALTER ROLE x PASSWORD ''secret''', 'SELECT password_hash FROM t', E'CREATE USER MAPPING FOR x SERVER y OPTIONS (user ''a'',\n "password" ''secret'')',
                    'SELECT dblink(''host=a password=secret'')', 'SELECT 1']) query;
SELECT setting, pgscale.report_secret(setting, value)
  FROM (VALUES ('work_mem', '4MB'), ('primary_conninfo', ''), ('archive_command', 'cp'), ('ssl_key_file', ''), ('data_directory', '/data'),
               ('password_encryption', 'md5'), ('no.such_setting', 'x'), ('no.such_secret', ''), ('log_line_prefix', 'PASSWORD=x'),
               ('search_path', 'https://a:b@c')) s (setting, value);
-- whoever reads a report sees no value that is for superusers
SELECT count(*) FROM regexp_split_to_table(pgscale.report(), '\n') line
 WHERE line ~ ('^  (' || (SELECT string_agg(name, '|') FROM pg_settings WHERE pgscale.report_secret(name, setting)) || ') ')
   AND line !~ '^  \w+ +\(hidden\)';

-- pictures; so few sessions that the machine's CPUs are not in them
SELECT pgscale.report_bucket(length, 100) FROM unnest('{1 us,1 s,5 min,1 h,1 day,30 days,10 years}'::interval[]) length;
SET TimeZone = 'UTC';
SELECT pgscale.report_chart(format, '2026-01-01 00:00:00+00', '2026-01-01 00:00:10+00', 2,
    array_agg(timestamptz '2026-01-01 00:00:00+00' + at * interval '1 s'), array_agg(class), array_agg(sessions), array_agg(covered),
    '{2026-01-01 00:00:05+00,2026-01-01 00:00:09+00,2027-01-01,infinity}', '{"work_mem <4MB>","a checkpoint began",never,never}')
  FROM unnest('{text,html}'::text[]) format,
       (VALUES (0, 'CPU', 0.05, 1), (0, 'Lock', 0.1, 1), (2, 'CPU', 0.2, 1), (2, 'Strange', 0.05, 0.5), (4, NULL, NULL, 0),
               (6, 'IO', 'NaN', 1), (6, 'IO', 'Infinity', 1), (6, 'IO', -1, 1), (6, 'LWLock', 0.2, 1), (100, 'IO', 5, 1), (-50, 'IO', 5, 1))
       a (at, class, sessions, covered)
 GROUP BY format ORDER BY format DESC;
SELECT pgscale.report_chart('text', now(), now(), 1, NULL, NULL, NULL, NULL);
SELECT pgscale.report_chart('text', '-infinity', now(), 1, NULL, NULL, NULL, NULL);
SELECT pgscale.report_chart('text', now() - interval '1 h', now(), 1, NULL, NULL, NULL, NULL);
SELECT pgscale.report_chart('text', now() - interval '1 h', now(), 'NaN', NULL, NULL, NULL, NULL);
SELECT pgscale.report_chart('text', now() - interval '1 h', now(), 60, '{now}', NULL, NULL, NULL);
SELECT pgscale.report_chart('text', now() - interval '1 h', now(), 60, NULL, NULL, NULL, NULL, '{now}', NULL);
SELECT pgscale.report_chart('html', '4713-01-01 BC', '294276-01-01', 1e12, NULL, NULL, NULL, NULL, NULL, NULL, 'NaN') ~ 'class="gap"';

-- who may
CREATE ROLE regress_report;
SET ROLE regress_report;
SELECT pgscale.report();
RESET ROLE;
GRANT pg_monitor TO regress_report;
SET ROLE regress_report;
SELECT line FROM regexp_split_to_table(pgscale.report(), '\n') line WHERE line ~ 'not for the role|missing';
RESET ROLE;
DROP ROLE regress_report;
DROP EXTENSION pgscale;
