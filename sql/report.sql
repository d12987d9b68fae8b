-- What a report is made of, and what it refuses. What it tells of a server with a load: see t/report_page.pl.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off
\pset null '-'
\set VERBOSITY terse
\set ECHO none
\pset tuples_only on

\echo '-- all parts, in both formats'
SELECT string_agg(line, ', ' ORDER BY n) FROM (SELECT line, n, lead(line) OVER (ORDER BY n) AS under
          FROM regexp_split_to_table(pgscale.report(), '\n') WITH ORDINALITY l (line, n)) l WHERE under ~ '^---+$';
SELECT string_agg(section[1], ' ') FROM regexp_matches(pgscale.report(format => 'html'), '<section id="(\w+)">', 'g') section;
SELECT string_agg(section[1], ' ') FROM regexp_matches(pgscale.report(now() - interval '2 h', now() - interval '1 h', 'html',
    now() - interval '1 h', now()), '<section id="(\w+)">', 'g') section;
SELECT max(length(line)) <= 120 AS fits FROM regexp_split_to_table(pgscale.report(), '\n') line;
SELECT page ~ '^<!DOCTYPE html>\n<html lang="en">' AS begins, page ~ '</html>\n$' AS ends, page ~ '[^\x01-\x7f]' AS beyond_ascii,
       page ~* '<script|<img|<link|<iframe|\son\w+=|javascript:|url\(|@import|src=|href=' AS asks_for_more,
       page ~ $$<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">$$ AS policy
  FROM pgscale.report(format => 'html') page;

\echo '-- what is no period, or no format'
SELECT pgscale.report(format => 'pdf');
SELECT pgscale.report(format => NULL);
SELECT pgscale.report(now() + interval '1 min');
SELECT pgscale.report(now(), now() - interval '1 s');
SELECT pgscale.report('2026-01-01', '2026-01-01');
SELECT pgscale.report('infinity');
SELECT pgscale.report(until => '-infinity');
SELECT pgscale.report(until => '1970-01-01');
SELECT pgscale.report(node => 'none');
SELECT pgscale_internal.report_table(format, '{"over time"}', '{levels}', array['01.|9', '<|>']) FROM unnest('{text,html}'::text[]) format;
SELECT pgscale.report(now() - interval '1 h', now(), since2 => now(), until2 => now() - interval '1 h');
\echo '-- and what is one'
SELECT pgscale.report(since, until) ~ 'Settings' AS made
  FROM (VALUES (now() - interval '10 years', NULL::timestamptz), ('-infinity', 'infinity'), (now() - interval '1 ms', now()),
               (now() - interval '1 us', NULL), (NULL, '2020-02-02'), ('0044-03-15 BC', now())) p (since, until);

\echo '-- cancelled as any query, and the settings are as before'
SET statement_timeout = '20ms';
SELECT count(pgscale.report()) FROM generate_series(1, 10000);
RESET statement_timeout;
SHOW lock_timeout;

\echo '-- a table, for psql and for a browser'
SELECT pgscale_internal.report_table(format, '{name,sessions,share,time,size,count,change,query}', '{name,number,share,ms,bytes,count,change,query}',
    array[['<b>&"x"</b>', '1.234', '0.4321', '12.34', '123456789', '1234567', '1.5', E'SELECT ''a''\n  FROM t -- <script>alert(1)</script>'],
          ['Infinity', 'Infinity', 'NaN', '-Infinity', '1e300', 'x', 'NaN', NULL],
          ['small', '0', '0', '0', '0', '-0.4', '-0.001', repeat('long ', 40)],
          ['large', '-12345.6', '1.7', '1e7', '1e13', '-1234567', '-12', '']])
  FROM unnest('{text,html}'::text[]) format;
SELECT pgscale_internal.report_table('text', '{n,prose}', '{count,prose}', array[['1', repeat('a sentence of some length, ', 12)], ['2', repeat('x', 200)]]);
SELECT pgscale_internal.report_table('text', '{"",""}', '{name,statement}', array[['apply', 'CALL pgscale.apply(''work_mem'', reload => true);']]);
SELECT pgscale_internal.report_table('html', '{a}', '{name}', NULL) = '' AS empty;
SELECT length(pgscale_internal.report_table('html', '{q}', '{query}', array[[repeat('<', 1000000)]]));
SELECT pgscale_internal.report_table('text', '{a}', '{name}', array_agg(i::text)) ~ '\n  200\n  and 300 more\n$' FROM generate_series(1, 500) i;
SELECT pgscale_internal.report_table('text', '{a,b}', '{name}', '{}');
SELECT pgscale_internal.report_table('text', '{a}', '{picture}', '{}');
SELECT pgscale_internal.report_table('text', '{a,b}', '{name,name}', '{x}');
SELECT pgscale_internal.report_table('text', '{}', '{}', '{}');

\echo '-- paragraphs'
SELECT pgscale_internal.report_paragraph(format, 'A <title> & "more"', style)
  FROM unnest('{text,html}'::text[]) format, unnest('{title,part,list,note,missing,""}'::text[]) style;
SELECT pgscale_internal.report_paragraph('text', repeat('words and words and ', 12), '');
SELECT pgscale_internal.report_paragraph('html', NULL, 'note') = '' AS nothing;

\echo '-- texts: control characters, direction, width, length'
SELECT pgscale_internal.clean_text(E'a\tb\x01c\x7fd\ne');
SELECT n, format('<%s>', pgscale_internal.clean_line(E'  SELECT\t1,\n\n   2\x7f', n)) AS line FROM unnest('{100,11,10,9,7,6,0,-1}'::int[]) n;
SELECT pgscale_internal.clean_line(U&'\00E9 \20AC\000A\+01F600x', 5) AS line, pgscale_internal.clean_line(NULL, 1), pgscale_internal.clean_line('', 1);
SELECT pgscale_internal.clean_text(U&'left\202Eright \200B\FEFF \0085 \FFFE \E0041 \FDD0');
SELECT pgscale_internal.clean_text(''), pgscale_internal.clean_text(NULL), pgscale_internal.clean_text(U&'\00E9\20AC\+01F600');
SELECT length(pgscale_internal.clean_statement(repeat('x', n))), right(pgscale_internal.clean_statement(repeat('x', n)), 4) FROM unnest('{1999,2000,2001,2000000}'::int[]) n;
SELECT pgscale_internal.report_paragraph('html', U&'\00E9\20AC\+01F600', '');
SELECT pgscale_internal.report_table('text', '{a,b}', '{name,name}', array[[U&'\6F22\5B57', 'x'], [U&'e\0301', 'y'], ['abcd', 'z']]);

\echo '-- secrets: of a statement that has one no constant is left'
SELECT query, pgscale_internal.clean_statement(query) AS clean FROM unnest(ARRAY[
    'ALTER ROLE x PASSWORD ''s3cr3t''', 'create role x login password E''s3\''cr3t'' valid until ''2030-01-01''', 'ALTER USER x ENCRYPTED PASSWORD $$s3cr3t$$',
    'SET x.password = s3cr3t', 'ALTER DATABASE d SET x.password TO s3cr3t', 'ALTER ROLE x IN DATABASE d SET "x.secret" to "s3cr3t"', 'UPDATE users SET "passWD" = ''s3cr3t'', n = 4711 WHERE id = $1', 'INSERT INTO u (name, passphrase) VALUES (''a'', ''s3cr3t'')',
    'INSERT INTO u VALUES (''s3cr3t'') RETURNING secret', 'SELECT ''s3cr3t'' AS my_pwd', 'UPDATE t SET access_token = ''s3cr3t''', 'UPDATE t SET pass = ''s3cr3t''', 'UPDATE t SET "apiKey" = ''s3cr3t''',
    'CREATE USER MAPPING FOR x SERVER y OPTIONS (user ''a'', "password" ''s3cr3t'')', 'ALTER SERVER x OPTIONS (sslpassword ''s3cr3t'')', 'ALTER SERVER x OPTIONS (SET user_password ''s3cr3t'')',
    'SELECT dblink(''host=a password=s3cr3t'')', 'SELECT dblink_connect(''postgres://u:s3cr3t@h/db'')', 'CREATE SUBSCRIPTION s CONNECTION ''postgresql://u:s3cr3t@h'' PUBLICATION p',
    'copy cp from program ''sleep 3; PGPASSWORD=s3cr3t true''', 'COPY t FROM PROGRAM ''curl --password s3cr3t host''', 'COPY t TO PROGRAM ''x -H "api-key: s3cr3t"''',
    'SELECT pgp_sym_encrypt(data, ''s3cr3t'') FROM t', 'SELECT Crypt (''s3cr3t'', gen_salt(''bf''))', 'SELECT hmac(data, ''s3cr3t'', ''sha256'')', 'SELECT encode(encrypt(data, ''s3cr3t''::bytea, ''aes''), ''hex'')',
    'DO $x$ BEGIN EXECUTE ''alter role x password ''''s3cr3t''''''; END $x$', 'SELECT format(''ALTER ROLE %I PASSWORD %L'', ''x'', ''s3cr3t'')', 'SELECT set_config(''my.jwt_token'', ''s3cr3t'', false)',
    'COPY t FROM PROGRAM ''curl -u a:s3cr3t host''', 'COPY t TO PROGRAM E''curl -u a:s3cr3t host''', E'COPY t FROM PROGRAM /* x */ -- y\n ''curl -u a:s3cr3t''', 'DO $$ BEGIN EXECUTE $x$COPY t FROM PROGRAM ''curl -u a:s3cr3t''$x$; END $$',
    'SELECT http_header(''Authorization'', ''Bearer s3cr3t'')', 'ALTER SYSTEM SET archive_command = ''scp -i s3cr3t''', 'SELECT set_config(''ssl_passphrase_command'', ''echo s3cr3t'', false)', 'SELECT pgscale.set(''archive_command'', ''echo s3cr3t'')',
    'SELECT 1; set x.password = s3cr3t', 'BEGIN; ALTER SYSTEM SET primary_conninfo TO ''host=a user=s3cr3t''', 'SELECT 1 /* passwd: s3cr3t */',
    'INSERT INTO j VALUES (''{"client_secret": "s3cr3t"}'')', 'SELECT 1 /* password=s3cr3t */', E'SELECT 1 -- pgpassword: s3cr3t\n FROM t', 'SELECT 1 /* a /* b */ ALTER ROLE x PASSWORD ''s3cr3t'' */ + 2',
    -- cut anywhere, and where a backslash may be an escape or not
    'ALTER ROLE x PASSWORD ''s3cr3', 'SELECT pgp_sym_decrypt(data, $k$s3cr3t', 'SELECT ''a\'', ''s3cr3t'', password', 'SELECT ''\''s3cr3t'' AS password']) WITH ORDINALITY q (query, n) ORDER BY n;
SELECT count(*) AS hidden, count(*) FILTER (WHERE pgscale_internal.clean_statement(query) ~ 's3') AS seen
  FROM unnest('{password,PASSWD,passphrase,my_secret,Secrets,credentials,apikey,api_key,access_key,private_key,encryption_key,token,auth_tokens,pass,db_pass,pwd,user_pwd,pw,db_pw,passcode,bearer}'::text[]) word,
       unnest(ARRAY['UPDATE t SET %s = ''s3''', 'UPDATE t SET "%s" = ''s3''', 'SELECT ''s3'' AS %s', 'SELECT ''%s=s3''', 'SELECT ''x%%s %s s3''', 'SELECT 1 /* %s = "s3" */', 'ALTER SERVER s OPTIONS (%s ''s3'')']) form,
       LATERAL (SELECT replace(form, '%s', word)) q (query);
\echo '-- and of others all is'
SELECT query AS changed, pgscale_internal.clean_statement(query) FROM unnest(ARRAY[
    'SELECT 1', 'SELECT password_hash FROM t', 'SELECT token FROM t', 'SELECT t.token, u.secret FROM t JOIN u USING (pass)', 'SELECT ''salt'' /* pass the salt, the password is not here */ + 1', E'SELECT 4711 -- password\n',
    'SELECT * FROM compass WHERE tokenized = ''x'' AND passes > 3 AND pwdx = ''y''', 'SET password_encryption = ''md5''', 'SELECT ''https://host/a:b@c''', 'SELECT ''a@b:c'', ''://'', ''://a@b''', 'SELECT crypt, digest FROM t WHERE a = ''b''',
    'SELECT ''it''''s'', E''a\''b'', $$c$$, $x$d$y$e$x$, 1.5e-3, -7, B''01'', U&''x'', "a""b" FROM t WHERE a$1 = $1', 'SELECT ''unended', '/* unended', '$x$ unended', '"unended', '''', '$', '-', '/', 'E''', '', 'SELECT 1 -- ''', 'SELECT ''a\'' || ''b''',
    'SELECT program FROM t WHERE program = ''x''', 'SELECT 1 FROM t WHERE kind = ''program'' AND a = ''x''', 'SELECT ''x'' -- the program''s users', 'UPDATE t SET archive_command = ''x'', private = 1', 'SET work_mem = ''4MB''', 'ALTER TABLE t ADD CONSTRAINT t_key CHECK (a > 5)', 'SELECT ''program: x'', ''pwx'', ''forbearer''',
    'SELECT 1 /* traceparent=''00-1'',controller=''x'' */', 'SELECT ''2030-01-01''::date - 1']) query WHERE query <> pgscale_internal.clean_statement(query);
\echo '-- that a text goes on with is not known'
SELECT left(pgscale_internal.clean_statement('SELECT ''s3cr3t'', 1 /* x */' || repeat(' ', 1048576) || 'AS password'), 40), left(pgscale_internal.clean_statement('SELECT ''s3cr3t''' || repeat(' ', 1000000) || 'AS password'), 20),
       left(pgscale_internal.clean_statement('SELECT ''x''' || repeat(' ', 1048576)), 20);
SELECT setting, pgscale_internal.is_secret(setting, value)
  FROM (VALUES ('work_mem', '4MB'), ('primary_conninfo', ''), ('archive_command', 'cp'), ('ssl_key_file', ''), ('data_directory', '/data'),
               ('password_encryption', 'md5'), ('no.such_setting', 'x'), ('no.such_secret', ''), ('log_line_prefix', 'PASSWORD=x'), ('work_mem', NULL), ('archive_command', NULL), ('log_line_prefix', 'passwordcheck'), ('log_line_prefix', 'https://host/x'),
               ('search_path', 'https://a:b@c')) s (setting, value);
\echo '-- a node of a fleet says whether it has another one'
SELECT settings ->> 'archive_command' ~ '^\(hidden\) [0-9a-f]{8}$' AS hidden, settings ->> 'work_mem' AS shown FROM pgscale_internal.node_state();
\echo '-- a report never shows a value that only superusers may read'
SELECT count(*) FROM regexp_split_to_table(pgscale.report(), '\n') line
 WHERE line ~ ('^  (' || (SELECT string_agg(name, '|') FROM pg_settings WHERE pgscale_internal.is_secret(name, setting)) || ') ')
   AND line !~ '^  \w+ +\(hidden\)';

\echo '-- pictures; so few sessions that the machine''s CPUs are not in them'
SELECT pgscale_internal.report_bucket(length, 100) FROM unnest('{1 us,1 s,5 min,1 h,1 day,30 days,10 years}'::interval[]) length;
SET TimeZone = 'UTC';
SELECT pgscale_internal.report_chart(format, '2026-01-01 00:00:00+00', '2026-01-01 00:00:10+00', 2,
    array_agg(timestamptz '2026-01-01 00:00:00+00' + at * interval '1 s'), array_agg(class), array_agg(sessions), array_agg(covered),
    '{2026-01-01 00:00:05+00,2026-01-01 00:00:09+00,2027-01-01,infinity}', '{"work_mem <4MB>","a checkpoint began",never,never}')
  FROM unnest('{text,html}'::text[]) format,
       (VALUES (0, 'CPU', 0.05, 1), (0, 'Lock', 0.1, 1), (2, 'CPU', 0.2, 1), (2, 'Strange', 0.05, 0.5), (4, NULL, NULL, 0),
               (6, 'IO', 'NaN', 1), (6, 'IO', 'Infinity', 1), (6, 'IO', -1, 1), (6, 'LWLock', 0.2, 1), (100, 'IO', 5, 1), (-50, 'IO', 5, 1))
       a (at, class, sessions, covered)
 GROUP BY format ORDER BY format DESC;
SELECT pgscale_internal.report_chart('text', now(), now(), 1, NULL, NULL, NULL, NULL);
SELECT pgscale_internal.report_chart('text', '-infinity', now(), 1, NULL, NULL, NULL, NULL);
SELECT pgscale_internal.report_chart('text', now() - interval '1 h', now(), 1, NULL, NULL, NULL, NULL);
SELECT pgscale_internal.report_chart('text', now() - interval '1 h', now(), 'NaN', NULL, NULL, NULL, NULL);
SELECT pgscale_internal.report_chart('text', now() - interval '1 h', now(), 60, '{now}', NULL, NULL, NULL);
SELECT pgscale_internal.report_chart('text', now() - interval '1 h', now(), 60, NULL, NULL, NULL, NULL, '{now}', NULL);
SELECT pgscale_internal.report_chart('html', '4713-01-01 BC', '294276-01-01', 1e12, NULL, NULL, NULL, NULL, NULL, NULL, 'NaN') ~ 'class="gap"';

\echo '-- who may'
CREATE ROLE regress_report;
SET ROLE regress_report;
SELECT pgscale.report();
RESET ROLE;
GRANT pg_monitor TO regress_report;
SET ROLE regress_report;
SELECT line FROM regexp_split_to_table(pgscale.report(), '\n') line WHERE line ~ 'not for the role|missing';
RESET ROLE;
DROP ROLE regress_report;

\echo '-- pictures of other lengths: a mark at both ends, none beyond; labels in local time; a given scale; no more than 40 marks'
SET TimeZone = 'Asia/Kathmandu';
SELECT length, array_length(regexp_split_to_array(chart, '<rect'), 1) - 1 AS buckets, regexp_replace(substring(chart FROM '<div class="x">(.*?)</div>'), '<.*?>', ' ', 'g') AS labels,
       (SELECT string_agg(t[1], ', ') FROM (SELECT regexp_matches(chart, '<title>(\d.*?):? (?:\d|not)', 'g') LIMIT 2) m(t)) AS titles,
       regexp_replace(substring(chart FROM '<ol class="marks">(.*?)</ol>'), '<.*?>', ' ', 'g') AS marks
  FROM unnest('{300 ms,4 s,61 s,1 h,23 h,25 h,10 days,100 days}'::interval[]) length,
       pgscale_internal.report_chart('html', '2026-01-01 22:20:03+00', '2026-01-01 22:20:03+00'::timestamptz + length, extract(epoch FROM length)::float8 / 7.5,
           ARRAY['2026-01-01 22:20:03+00'::timestamptz], '{CPU}', '{0.1}', '{1}',
           ARRAY['2026-01-01 22:20:02.999999+00', '2026-01-01 22:20:03+00', '2026-01-01 22:20:03+00'::timestamptz + length, '2026-01-01 22:20:03+00'::timestamptz + length + interval '1 us'],
           '{before,begin,end,after}') chart;
\echo '-- waits for a buffer are one class, by its name in this major and in others'
SELECT regexp_replace(pgscale_internal.report_chart('text', '2026-01-01', '2026-01-03', 43200, ARRAY['2026-01-01 12:00'::timestamptz, '2026-01-02 12:00', '2026-01-02 12:00'],
    '{CPU,BufferPin,Buffer}', '{0.1,0.02,0.02}', '{1,1,1}', NULL, NULL, 0.3), 'B Buffer(Pin)?', 'B');
SELECT pgscale_internal.report_chart('text', '2026-01-01', '2026-01-07', 86400, ARRAY['2025-12-31 12:00'::timestamptz, '2026-01-06 12:00', '2026-01-07'], '{Timeout,Extension,IPC}', '{0.1,0.02,0.3}', '{1,1,1}');
SELECT substring(pgscale_internal.report_chart('text', '2026-01-01 22:20:03+00', '2026-01-01 22:26:03+00', 120, NULL, NULL, NULL, NULL) FROM '\d+:[\d:]+') AS begin;
SELECT regexp_count AS spans, chart ~ '>and 5 more<' AS rest FROM pgscale_internal.report_chart('html', '2026-01-01', '2026-01-02', 3600, NULL, NULL, NULL, NULL,
    ARRAY(SELECT '2026-01-01'::timestamptz + i * interval '10 min' FROM generate_series(1, 45) i), ARRAY(SELECT i::text FROM generate_series(1, 45) i)) chart,
    LATERAL (SELECT count(*) AS regexp_count FROM regexp_matches(substring(chart FROM '<div class="n">.*?</div>'), '<span', 'g')) n;
SELECT sessions, chart ~ '; CPUs: [1-9]' AS cpus, substring(chart FROM 'average: .*? [0-9.]+') AS average
  FROM (VALUES (0.001), (3000), (9999999), (1e7), (-1)) v (sessions), pgscale_internal.report_chart('text', '2026-01-01', '2026-01-02', 86400, ARRAY['2026-01-01'::timestamptz], '{IO}', ARRAY[sessions::float8], '{1}') chart;
SET TimeZone = 'UTC';

\echo '-- figures on both sides of each unit'
SELECT string_agg(substring(pgscale_internal.report_table('text', '{""}', ARRAY[kind], ARRAY[value]) FROM '  +(.*)\n'), '; ' ORDER BY n)
  FROM unnest('{ms,ms,ms,ms,ms,ms,ms,ms,ms,ms,ms,ms,bytes,bytes,bytes,bytes,bytes,bytes,bytes,number,number,number,number,change,change,change,change,change,share,share,count,count,count,count,count}'::text[],
              '{0.0005,0.9994,0.9996,-5,999.4,999.6,119999,120000,7199999,7200000,172799999,172800000,1023,1024,1048575,1048576,1073741824,1099511627776,-2048,999.99,1000,-1000,-0.125,0.0049,0.0051,-0.0051,-0.0049,12345.6,1.25,-0.5,999,1000,-1234,999999.5,-0.4}'::text[])
       WITH ORDINALITY k (kind, value, n);
SELECT pgscale_internal.report_table('html', '{a,b}', '{share,change}', '{0.25,1,1.5,-1,-0.5,0}');
SELECT pgscale_internal.report_table('text', '{n,s,c,q}', '{name,prose,statement,query}', ARRAY[[repeat('n', 101), repeat('word ', 201), repeat('s', 300), repeat('q', 2001)]]);
SELECT pgscale_internal.report_table('text', '{a,b}', '{name,count}', ARRAY['x', '1', NULL, '22']);
SELECT string_agg(to_hex(c), ' ' ORDER BY c) AS misleading
  FROM unnest('{128,159,160,1563,1564,1565,8202,8203,8207,8208,8231,8232,8238,8239,8287,8288,8303,8304,64975,64976,65007,65008,65278,65279,65280,65519,65520,917503,917504,921599,921600,131069,131070,131071,131072}'::int[]) c
 WHERE pgscale_internal.clean_text(chr(c)) = U&'\FFFD';

\echo '-- each word that makes a setting a secret; and none that is only like one'
SELECT string_agg(s, ' ' ORDER BY s) AS secret FROM unnest('{command,conninfo,password,passwd,passphrase,secret,token,credential,private,apikey,api_key,key_file,keyfile,comand,pass,key}'::text[]) s
 WHERE pgscale_internal.is_secret('x.My_' || upper(s) || 's', 'plain');
SELECT string_agg(s, ' ' ORDER BY s) AS secret FROM unnest('{password,passwd,passphrase,secret,token=,token,apikey,api_key,://,:/,key}'::text[]) s
 WHERE pgscale_internal.is_secret('x.y', 'a ' || upper(s) || ' b');

\echo '-- periods'
SELECT * FROM pgscale_internal.report_period('2020-05-01 10:00', '2020-05-01 11:30');
SELECT * FROM pgscale_internal.report_period(NULL, '2020-05-01 11:30');
SELECT * FROM pgscale_internal.report_period(NULL, '2000-01-02');
SELECT * FROM pgscale_internal.report_period(NULL, '2000-01-01 23:59:59');
SELECT until - since BETWEEN '1 h' AND '61 min', until <= clock_timestamp() FROM pgscale_internal.report_period(NULL, 'infinity');

\echo '-- two periods in an archive, of minutes of unequal length: some waits rise, some fall, some come and go'
SELECT pgscale_internal.archive_partition('archive_minute', day), pgscale_internal.archive_partition('archive_query', day) FROM unnest('{2020-05-01,2020-05-02}'::date[]) day;
CREATE FUNCTION minute(at text, period_s float8, base float8, waits text, node text DEFAULT 'a') RETURNS void LANGUAGE sql AS $$
    INSERT INTO pgscale_internal.archive_minute
    SELECT m.*
      FROM pg_control_system() c, pg_database d,
           (SELECT jsonb_object_agg(name, base * n) AS counters FROM pgscale_internal.archive_counter WHERE source <> 'sampler') b,
           (SELECT coalesce(array_agg(coalesce(t.kind, 'client backend')), '{}'), coalesce(array_agg(7::oid) FILTER (WHERE t IS NOT NULL), '{}'), coalesce(array_agg(t.d), '{}'),
                   coalesce(array_agg(t.u), '{}'), coalesce(array_agg(t.a), '{}'), coalesce(array_agg(t.q), '{}'), coalesce(array_agg(t.t), '{}'),
                   coalesce(array_agg(t.e), '{}'), coalesce(array_agg(t.r), '{}'), coalesce(array_agg(t.ms::real), '{}')
              FROM jsonb_to_recordset(waits::jsonb) AS t(kind text, d text, u text, a text, q bigint, t text, e text, r text, ms float8)) w
             (backend_types, datids, datnames, usenames, application_names, queryids, event_types, events, blockers, wait_ms),
           jsonb_populate_record(NULL::pgscale_internal.archive_minute, '{"node_id": 0, "timeline": 1, "standby": false, "pulled": false}' || b.counters || to_jsonb(w) || jsonb_build_object('at', at::timestamptz,
               'period_s', period_s, 'rounds', 1, 'node', node, 'cluster', c.system_identifier, 'database', d.oid, 'observed_ms', period_s * 1000)) m
     WHERE d.datname = current_database()
$$;
SELECT minute('2020-05-01 10:00', 60, 1, '[{"d":"shop","u":"ann","a":"web","q":1,"t":"IO","e":"DataFileRead","ms":6000}, {"d":"shop","u":"ann","a":"web","q":1,"t":"CPU","e":"CPU","ms":90},
    {"d":"shop","u":"ann","a":"web","q":1,"t":"IPC","e":"BtreePage","ms":300}, {"d":"shop","u":"ann","a":"web","q":1,"t":"LWLock","e":"WALWrite","ms":600}, {"d":"shop","u":"ann","a":"web","q":1,"t":"LWLock","e":"WALInsert","ms":500}]'),
       minute('2020-05-01 10:01', 540, 3, '[{"d":"shop","u":"ann","a":"web","q":1,"t":"IO","e":"DataFileRead","ms":27000}, {"d":"bank","u":"bob","a":"app","q":2,"t":"Lock","e":"tuple","r":"7 batch","ms":9000},
    {"d":"bank","u":"bob","a":"app","q":-3,"t":"Client","e":"IdleInTransaction","ms":5400}, {"d":"bank","u":"bob","a":"app","t":"CPU","e":"CPU","ms":2700}, {"kind":"checkpointer","t":"IO","e":"DataFileSync","ms":3600}]', 'b'),
       minute('2020-05-02 10:00', 240, 2, '[{"d":"shop","u":"ann","a":"web","q":1,"t":"IO","e":"DataFileRead","ms":4800}, {"d":"bank","u":"bob","a":"app","q":2,"t":"Lock","e":"tuple","r":"8 psql","ms":28800}]'),
       minute('2020-05-02 10:04', 60, 5, '[{"d":"bank","u":"eve","a":"new","q":4,"t":"LWLock","e":"WALWrite","ms":9000}]');
INSERT INTO pgscale_internal.archive_query VALUES ('2020-05-01', 1, '2020-05-01 10:00', '2020-05-01 10:00', E'SELECT *\n  FROM orders WHERE pay = ''password'''), ('2020-05-01', 2, '2020-05-01 10:00', '2020-05-01 10:00', 'UPDATE stock SET n = n - 1');
INSERT INTO pgscale_internal.archive_change VALUES ('2020-05-01 09:59:59', 'work_mem', 'too', 'early'), ('2020-05-01 10:00', 'work_mem', '4096', '8192'), ('2020-05-01 10:02', 'archive_command', 'hidden', 'hidden'),
    ('2020-05-01 18:00', 'jit', NULL, 'on'), ('2020-05-02 10:02', 'log_line_prefix', repeat('o', 41), repeat('n', 40)), ('2020-05-02 10:05', 'jit', 'on', NULL), ('2020-05-02 10:05:01', 'work_mem', 'too', 'late');
\set one '''2020-05-01 10:00'', ''2020-05-01 10:10'''
\set two '''2020-05-02 10:00'', ''2020-05-02 10:05'''
\set none 'NULL, NULL, ''text'''
\echo '-- two nodes, of which one is promoted; a row fills all of its time, and rest is known'
BEGIN;
UPDATE pgscale_internal.archive_minute SET active_session_ms = period_s * 1000 WHERE at < '2020-05-02';
INSERT INTO pgscale_internal.archive_minute SELECT n.* FROM pgscale_internal.archive_minute m, jsonb_populate_record(m,
    jsonb_build_object('node', 'c', 'node_id', 7, 'standby', m.period_s = 60, 'pulled', true, 'active_session_ms', 0)) n WHERE m.at < '2020-05-02';
SELECT pgscale_internal.report_part('nodes', '2020-05-01 09:55', '2020-05-01 10:10', :none);
UPDATE pgscale_internal.archive_minute SET active_session_ms = 0;
SELECT array_agg(m[1]) FROM regexp_matches(pgscale_internal.report_part('nodes', :one, :none), '([0-9.|]{40})', 'g') m;
ROLLBACK;
SELECT pgscale_internal.report_known('2020-05-01 09:55', '2020-05-01 10:10'), pgscale_internal.report_known('2020-05-01 10:05', '2020-05-01 10:06'), pgscale_internal.report_known('2020-05-03', '2020-05-04');
\echo '-- gaps: one, four, less than a second, in a long period; and hardly anything that is known'
SELECT FROM generate_series(1, 4) i, minute(concat('2020-05-02 15:1', i), 60 - i * i, 1, '[]') m;
SELECT FROM minute('2020-05-02 15:15', 59.5, 1, '[]') a, minute('2020-05-02 15:16', 60, 1, '[]') b, minute('2020-05-02 15:17', 59, 1, '[]') c;
SELECT pgscale_internal.report_known(since, until) FROM (VALUES ('2020-05-02 15:11'::timestamptz, '2020-05-02 15:12'::timestamptz), ('2020-05-02 15:11', '2020-05-02 15:18'), ('2020-05-02 15:16', '2020-05-02 15:17'),
    ('2020-05-02 15:15', '2020-05-02 15:17'), ('2020-05-02 15:16', '2020-05-02 15:18'), ('2020-05-01', '2020-05-02 15:17'), ('2020-05-02 15:16:59.9', '2020-05-02 16:30'), ('2020-05-02 15:16', '2020-05-02 15:16:00.5'), ('2020-05-02 15:16:00.02', '2020-05-02 15:17:59.02'),
    ('2020-05-02 15:17:58.99', '2020-05-03 15:00')) p (since, until);
DELETE FROM pgscale_internal.archive_minute WHERE at >= '2020-05-02 15:00';
SELECT * FROM pgscale_internal.report_period('-infinity', '2020-05-01 11:30');
\echo '-- first what is drawn: so few sessions that the machine''s CPUs are not in it'
SELECT array_to_string((regexp_split_to_array(pgscale_internal.report_section('activity', 'Activity', 'about it', :one, :none), '\n'))[1:9], E'\n');
SELECT regexp_replace(pgscale_internal.report_section('activities', 'Activities', NULL, :one, :two, 'text'),
    '(  ..:..:..)( +[0-9.]+  [A-Z.]+)([^\n]*\n)(?:  ..:..:..\2\n)+', E'\\1\\2\\3  ...\n', 'g');
SELECT string_agg(y[1], ' ') AS scales FROM regexp_matches(pgscale_internal.report_part('activities', '2020-05-01 10:01', '2020-05-01 10:10', :two, 'html'), 'bottom:100.0%">(.*?)<', 'g') y;
SELECT string_agg(y[1], ' ') AS scales FROM regexp_matches(pgscale_internal.report_part('activities', :two, '2020-05-01 10:01', '2020-05-01 10:10', 'html'), 'bottom:100.0%">(.*?)<', 'g') y;
SELECT string_agg(y[1], ' ') AS scales FROM regexp_matches(pgscale_internal.report_part('activities', :two, '2020-05-01 10:01', '2020-05-01 10:10', 'text'), 'sessions  0 .* (\S+)$', 'gn') y;
SELECT pgscale_internal.report_part('activities', '2020-05-01 10:01', '2020-05-01 10:10', :two, 'html') ~ '^<div class="two"><div><h3>1</h3><figure>.*</figure>\n</div><div><h3>2</h3><figure>.*</figure>\n</div></div>$' AS two;
\echo '-- and then fifty times as many'
UPDATE pgscale_internal.archive_minute SET wait_ms = ARRAY(SELECT ms * 50 FROM unnest(wait_ms) ms);
SELECT pgscale_internal.report_section(part, upper(part), 'about it', :one, :none) FROM unnest('{summary,queries,sessions,blockers,load}'::text[]) part;
SELECT (regexp_split_to_array(pgscale_internal.report_part('waits', :one, :none), '\n  What helps'))[1];
SELECT line AS helps FROM (SELECT left(l, 44) AS line, n FROM regexp_split_to_table(pgscale_internal.report_part('waits', :one, :none), '\n') WITH ORDINALITY t (l, n)) l WHERE line ~ '^  [^ -].* %$' ORDER BY n;
\echo '-- its meaning and what helps are those of this major'
SELECT k.kind, position(concat('>', CASE WHEN k.cured_in <= pgscale_internal.major() THEN k.cured_meaning ELSE k.meaning END, '<') IN page) > 0 AS meaning,
       position(concat('>', replace(k.remedy, '''', '&#39;'), '<') IN page) > 0 AS remedy
  FROM pgscale.wait_meanings k, pgscale_internal.report_part('waits', :one, NULL, NULL, 'html') page WHERE k.kind IN (pgscale.wait_kind('IO', 'DataFileRead'), pgscale.wait_kind('Lock', 'tuple')) ORDER BY 1;
SELECT pgscale_internal.report_part('load', '2020-05-01 10:00:01', '2020-05-01 10:01', :none), pgscale_internal.report_part('load', '2020-05-01 10:01', '2020-05-01 10:01:01', :none);
SELECT pgscale_internal.report_section(part, upper(part), NULL, :one, :two, 'text') FROM unnest('{periods,differences,changes}'::text[]) part;
SELECT pgscale_internal.report_section('differences', 'And back', NULL, :two, :one, 'text') ~ 'LWLock:WALWrite +1.50 +0.05 +-1.45 +21.1 % +1.2 %' AS back;
SELECT pgscale_internal.report_part('changes', :two, :one, 'text') = pgscale_internal.report_part('changes', :one, :two, 'text') AS whichever_is_earlier;
\echo '-- who is to blame: one that was idle in its transaction, several, one that worked, one without a process, none; and of those that are known'
\echo '-- now, none that was in the way at another time'
CREATE FUNCTION root(pid int, app text, state text, q bigint, waited float8, idle float8, first text, last text) RETURNS text LANGUAGE sql AS $$
    SELECT format('(%L::int, now(), %s::xid, 5::oid, 3373::oid, %L::text, NULL::inet, %L::text, %L::bigint, %L::text, %L::float8, %L::float8, 3, %L::timestamptz, %L::timestamptz)',
        pid, CASE pid WHEN 0 THEN '''99''' ELSE 'NULL' END, app, state, q, 'tuple', waited, idle, first, last)
$$;
SELECT format('CREATE OR REPLACE FUNCTION pgscale_internal.blocker_profile(%s) RETURNS SETOF record LANGUAGE sql AS $f$VALUES %s$f$', pg_get_function_arguments('pgscale_internal.blocker_profile'::regproc),
    concat_ws(', ', root(11, 'batch', 'idle in transaction', -3, 2000, 1800, '2020-06-01 09:58', '2020-06-01 10:03'), root(11, 'batch', 'active', 1, 1e9, 0, '2020-06-01 09:00', '2020-06-01 09:59:59'),
        root(11, 'batch', 'active', 1, 10, 0, '2020-06-01 10:05:01', '2020-06-01 11:00'), root(12, 'web', 'idle in transaction', NULL, 100, 60, '2020-06-01 10:06', '2020-06-01 10:09'),
        root(13, '', 'idle in transaction', 1, 100, 90, '2020-06-01 10:06', '2020-06-01 10:08'), root(14, 'app', 'active', 2, 100, 10, '2020-06-01 10:10', '2020-06-01 10:14'),
        root(15, 'x', 'idle in transaction', 1, 1, 1, '2020-06-01 12:00', '2020-06-01 13:00'), root(0, NULL, 'prepared', NULL, 100, NULL, '2020-06-01 10:15', '2020-06-01 10:19'))) \gexec
SELECT pgscale_internal.archive_partition('archive_minute', '2020-06-01'), pgscale_internal.archive_partition('archive_query', '2020-06-01');
INSERT INTO pgscale_internal.archive_query VALUES ('2020-06-01', -3, '2020-06-01', '2020-06-01', E'UPDATE held\n   SET pin = 4711 /* password=x */'), ('2020-06-01', 2, '2020-06-01', '2020-06-01', 'UPDATE stock SET n = n - 1');
SELECT minute('2020-06-01 10:00', 300, 1, '[{"q":5,"t":"Lock","e":"transactionid","r":"11 batch","ms":700000}, {"q":6,"t":"Lock","e":"tuple","ms":20000}, {"q":6,"t":"CPU","e":"CPU","ms":280000}, {"q":-3,"t":"Client","e":"IdleInTransaction","ms":900000}]'),
       minute('2020-06-01 10:05', 300, 1, '[{"q":6,"t":"Lock","e":"tuple","r":"12 web","ms":100000}, {"q":6,"t":"Lock","e":"tuple","r":"13","ms":200000}]'),
       minute('2020-06-01 10:10', 300, 1, '[{"q":2,"t":"Lock","e":"tuple","r":"14 app","ms":100000}, {"q":6,"t":"Lock","e":"tuple","r":"15 x","ms":90000}, {"q":6,"t":"CPU","e":"CPU","ms":2000}]'),
       minute('2020-06-01 10:15', 300, 1, '[{"q":6,"t":"Lock","e":"relation","r":"prepared transaction","ms":5000}, {"q":6,"t":"IO","e":"DataFileRead","ms":95000}]'),
       minute('2020-06-01 10:20', 300, 1, '[{"q":6,"t":"Lock","e":"relation","r":"16 x","ms":4900}, {"q":6,"t":"Extension","e":"Mine","ms":95100}]'),
       minute('2020-06-01 10:25', 300, 1, '[{"q":6,"t":"Lock","e":"tuple","r":"17 x","ms":24000}, {"q":6,"t":"Lock","e":"tuple","r":"18 x","ms":24000}, {"q":6,"t":"Lock","e":"tuple","ms":52000}]'),
       minute('2020-06-01 10:30', 300, 1, '[{"t":"Client","e":"IdleInTransaction","ms":600000}]');
SELECT pgscale_internal.report_part('summary', at, at + interval '5 min', :none) FROM generate_series('2020-06-01 10:00'::timestamptz, '2020-06-01 10:30', '5 min') at;
SELECT * FROM pgscale_internal.report_blame('2020-06-01 10:00', '2020-06-01 10:05');
SELECT pgscale_internal.report_part('blockers', '2020-06-01 10:00', '2020-06-01 10:10', :none);
SELECT * FROM pgscale_internal.report_roots('2020-05-31', '2020-06-02') WHERE item = '14 app';
SELECT item, state, idle_fraction FROM pgscale_internal.report_roots('2020-06-01 10:10', '2020-06-01 10:15');
\echo '-- and what helps is not for rows that many change'
SELECT left(line[1], 84)
  FROM unnest('{2020-06-01 10:00,2020-06-01 10:10}'::timestamptz[]) at,
       regexp_matches((regexp_split_to_array(pgscale_internal.report_part('waits', at, at + interval '5 min', :none), '\n  What helps'))[2],
           '^  [^ -].* %.*', 'gn') line;
BEGIN;
CREATE OR REPLACE FUNCTION pgscale_internal.tuning_since(duration interval DEFAULT '10 minutes') RETURNS timestamptz LANGUAGE sql AS $$ SELECT current_setting('report.since')::timestamptz $$;
SELECT minute('2020-06-01 11:00', 300, 1, '[{"q":6,"t":"Lock","e":"extend","ms":300000}, {"q":6,"t":"Lock","e":"relation","ms":300000}, {"q":6,"t":"IO","e":"WalSync","ms":300000}]');
SET LOCAL report.since = '2020-06-01 10:00';
SELECT lower(event) AS event, left(now_possible, 40) AS now_possible FROM pgscale.contention() WHERE event_type = 'Lock' OR lower(event) = 'walsync' ORDER BY 1;
SET LOCAL report.since = '2020-06-01 10:07:30';
SELECT event, usual_fraction, left(now_possible, 40) AS now_possible FROM pgscale.contention() WHERE event = 'tuple';
ROLLBACK;
\echo '-- the averages of a chart are those of the table beside it, also where the period has a part of its first bucket and of its last, or is not known in part'
SELECT since, until, c.event_type, c.sessions AS chart, round(w.active_sessions::numeric, 1) AS "table", abs(c.sessions - w.active_sessions) <= 0.0501 AS the_same
  FROM (VALUES ('2020-06-01 10:03:30'::timestamptz, '2020-06-01 10:31:15'::timestamptz), ('2020-06-01 10:04:59', '2020-06-01 10:20:20'), ('2020-06-01 09:30', '2020-06-01 10:07:30')) p (since, until),
       LATERAL (SELECT m[1], m[2]::float8 FROM regexp_matches(substring(pgscale_internal.report_part('activity', since, until, :none) FROM 'average: [^;\n]*'), '[A-Zo] (\w+) ([0-9.]+)', 'g') m) c (event_type, sessions)
  LEFT JOIN LATERAL (SELECT * FROM pgscale.top_waits(since, until, 'class')) w ON w.item = c.event_type ORDER BY 1, 2, 3;
\echo '-- a part that there is not, one that fails, one that has nothing: a sentence in its place'
SELECT pgscale_internal.report_section('moon', 'Moon', 'about it', :one, :none);
SELECT pgscale_internal.report_section('waits', 'Waits', 'about it', '2020-05-03', '2020-05-04', NULL, NULL, 'html');
SELECT pgscale_internal.report_section(part, upper(part), 'about it', '2020-05-03', '2020-05-04', :none) FROM unnest('{summary,load,blockers,changes}'::text[]) part;
\echo '-- more marks than a chart has room for: those of checkpoints go first'
SELECT FROM generate_series(1, 45) i, LATERAL (SELECT minute(concat('2020-05-02 20:', i), 60, 1, '[]')) m;
INSERT INTO pgscale_internal.archive_change SELECT '2020-05-02 20:50'::timestamptz + i * interval '1 s', 'jit', 'on', 'off' FROM generate_series(1, 3) i;
SELECT count(*) AS marks, count(*) FILTER (WHERE m[1] ~ 'jit') AS settings, count(*) FILTER (WHERE m[1] ~ '53 checkpoints in 60 s') AS checkpoints
  FROM regexp_matches(pgscale_internal.report_part('activity', '2020-05-02 20:00', '2020-05-02 21:00', :none), '^  \(\d+\) (.*)$', 'gn') m;

\echo '-- each figure is what its title says: what a report asks answers with the numbers of its columns'
DO $do$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT p.pronamespace::regnamespace AS schema, p.proname, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result,
                      (SELECT string_agg(CASE WHEN t = 'timestamptz'::regtype THEN format('timestamptz %L + interval ''%s s''', '2020-05-01', n)
                                              WHEN t IN ('text'::regtype, 'name'::regtype) THEN format('%L::%s', name, t::regtype)
                                              WHEN t IN ('integer'::regtype, 'bigint'::regtype) THEN format('%s::%s', n, t::regtype)
                                              WHEN t = 'double precision'::regtype THEN format('%s::float8', n / 100.0)
                                              ELSE format('NULL::%s', t::regtype) END, ', ' ORDER BY n)
                         FROM unnest(p.proallargtypes, p.proargmodes, p.proargnames) WITH ORDINALITY a (t, mode, name, n) WHERE mode = 'o') AS answer
                 FROM pg_proc p WHERE p.pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace)
                  AND p.proname IN ('blockers', 'connections', 'connections_by_application', 'scalability', 'clock_sweep', 'buffer_usage_sample', 'writeback_stats', 'sweeper_stats', 'node_identity', 'tuning_journal', 'wal_efficiency') LOOP
        EXECUTE format('CREATE OR REPLACE FUNCTION %s.%I(%s) RETURNS %s LANGUAGE sql AS $f$SELECT %s$f$', one.schema, one.proname, one.arguments, one.result, one.answer);
    END LOOP;
    FOR one IN SELECT c.relname, string_agg(CASE WHEN a.atttypid = 'timestamptz'::regtype THEN format('timestamptz %L + interval ''%s s''', '2020-05-01', a.attnum)
                                                 WHEN a.atttypid IN ('text'::regtype, 'name'::regtype) THEN format('%L::%s', a.attname, a.atttypid::regtype)
                                                 WHEN a.atttypid IN ('integer'::regtype, 'bigint'::regtype) THEN format('%s::%s', a.attnum, a.atttypid::regtype)
                                                 WHEN a.atttypid = 'double precision'::regtype THEN format('%s::float8', a.attnum / 100.0)
                                                 ELSE format('NULL::%s', a.atttypid::regtype) END || ' AS ' || quote_ident(a.attname), ', ' ORDER BY a.attnum) AS answer
                 FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
                WHERE c.relnamespace = 'pgscale'::regnamespace AND c.relname IN ('advice', 'relocation_jobs') GROUP BY 1 LOOP
        EXECUTE format('CREATE OR REPLACE VIEW pgscale.%I AS SELECT %s FROM generate_series(1, 22)', one.relname, one.answer);
    END LOOP;
END
$do$;
SELECT array_to_string((regexp_split_to_array(regexp_replace(pgscale_internal.report_part(part, :one, :none),
           '(\n[^\n]+)\1+', '\1 ...', 'g'), '\n'))[1:10], E'\n')
  FROM unnest('{blockers,connections,sweeper,writeback,relocation,advice,scalability}'::text[]) part;
SELECT count(*) AS rows FROM regexp_matches(pgscale_internal.report_part('relocation', :one, :none), '\n +1 ', 'g');
SELECT count(*) AS rows FROM regexp_matches(pgscale_internal.report_part('advice', :one, :none), 'CALL pgscale.apply', 'g');
SELECT (regexp_split_to_array(pgscale_internal.report_part('buffers', :one, :none), 'By database'))[1];
SELECT line FROM regexp_split_to_table(pgscale_internal.report_part('period', :one, :none), '\n') line WHERE line ~ '^  (Node|Period)|of the period';
SELECT pgscale_internal.report_node();
SELECT to_char(at, 'HH24:MI:SS') AS at, kind, mark FROM pgscale_internal.report_marks('2020-05-01', '2020-05-01 00:01');
SELECT kind, mark FROM pgscale_internal.report_marks(pg_postmaster_start_time(), pg_postmaster_start_time());
SELECT kind, mark FROM pg_control_checkpoint() c, pgscale_internal.report_marks(c.checkpoint_time, c.checkpoint_time) WHERE kind = 'checkpoint';
SELECT pgscale_internal.report_part('wal', :one, :none) ~ '\n  reason.?\n' AS reason;
\echo '-- and those of the server are the server''s'
BEGIN;
SET LOCAL stats_fetch_consistency = snapshot;
SELECT starts_with(pgscale_internal.report_part('wal', :one, :none), pgscale_internal.report_table('text', '{"WAL since the reset",records,"page images","buffers full","since"}', '{bytes,count,count,count,name}',
           ARRAY[wal_bytes::text, wal_records::text, wal_fpi::text, wal_buffers_full::text, date_trunc('second', stats_reset)::text])) AS wal FROM pg_stat_wal;
SELECT pgscale_internal.major() >= 17 AS new \gset
\if :new
CREATE TEMP VIEW checkpoints AS SELECT num_timed AS a, num_requested AS b, buffers_written AS c, write_time AS d, sync_time AS e, stats_reset FROM pg_stat_checkpointer;
\else
CREATE TEMP VIEW checkpoints AS SELECT checkpoints_timed AS a, checkpoints_req AS b, buffers_checkpoint AS c, checkpoint_write_time AS d, checkpoint_sync_time AS e, stats_reset FROM pg_stat_bgwriter;
\endif
SELECT strpos(pgscale_internal.report_part('wal', :one, :none), pgscale_internal.report_table('text', '{"timed checkpoints",requested,"buffers written",writing,syncing,"since"}', '{count,count,count,ms,ms,name}',
           ARRAY[a::text, b::text, c::text, d::text, e::text, date_trunc('second', stats_reset)::text])) > 0 AS checkpoints FROM checkpoints;
SELECT pgscale_internal.report_part('health', :one, :none) = pgscale_internal.report_table('text', '{feature,state,why,"what to do"}', '{name,name,prose,prose}', array_agg(ARRAY[feature, state, reason, action])) AS health
  FROM pgscale_internal.health();
SELECT strpos(pgscale_internal.report_part('buffers', :one, :none), pgscale_internal.report_table('text', '{database,"blocks read","found in buffers","mean read",transactions,"temporary files"}', '{name,count,share,ms,count,bytes}',
           (SELECT array_agg(ARRAY[datname::text, blks_read::text, (blks_hit::float8 / (blks_hit + blks_read))::text, CASE WHEN blk_read_time > 0 THEN (blk_read_time / nullif(blks_read, 0))::text END,
                (xact_rollback + xact_commit)::text, temp_bytes::text] ORDER BY blks_read DESC) FROM pg_stat_database WHERE datname IS NOT NULL AND blks_hit + blks_read > 0))) > 0 AS databases;
COMMIT;
SELECT string_agg(name, ' ' ORDER BY name) AS missing FROM pg_settings s
 WHERE name IN ('work_mem', 'shared_buffers', 'autovacuum', 'max_connections', 'archive_command') AND setting IS DISTINCT FROM boot_val AND source NOT IN ('default', 'override', 'client', 'session')
   AND pgscale_internal.report_part('settings', :one, :none) !~ ('\n  ' || name || ' +' || current_setting(name) || ' +\S');
\echo '-- a value with its unit, as SHOW prints it'
SELECT name, setting, unit, pgscale_internal.setting_text(setting, unit) FROM pg_settings WHERE pgscale_internal.setting_text(setting, unit) <> current_setting(name);
SELECT value, unit, pgscale_internal.setting_text(value, unit)
  FROM (VALUES ('16384', '8kB'), ('-1', '8kB'), ('0', 'kB'), ('1025', 'kB'), ('3145728', 'kB'), ('5', '32kB'), ('1440', 'min'), ('90', 's'), ('0.5', 'ms'),
               ('100', NULL), ('16MB', 'kB'), ('', 'kB'), (NULL, 'kB'), ('7', 'parsecs')) v (value, unit);
\echo '-- 19 has these values by default'
SELECT string_agg(name, ' ') AS wrong FROM unnest('{jit,log_lock_waits,max_locks_per_transaction}'::text[]) name
 WHERE pgscale_internal.report_part('settings', :one, :none) ~ ('\n  ' || name || ' ') <> (pgscale_internal.major() < 19);
DROP FUNCTION minute;
DROP FUNCTION root;
DROP EXTENSION pgscale;
