-- A report of one period or of two, section by section.

-- A part, or a sentence with the reason why it is missing. Parts only read. WHEN OTHERS does not catch a cancel. What speaks of the
-- server's state (a lack of resources, a damaged file) is in the log, too.
CREATE FUNCTION pgscale_internal.report_section(
    part text, title text, about text, since timestamptz, until timestamptz, since2 timestamptz, until2 timestamptz, format text,
    node text DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    body text;
    why text;
BEGIN
    BEGIN
        body := pgscale_internal.report_part(part, since, until, since2, until2, format, node);
        IF coalesce(body, '') = '' THEN
            why := 'There is nothing to show.';
        END IF;
    EXCEPTION
        WHEN insufficient_privilege THEN
            why := 'This part is not for the role that asked: ' || SQLERRM || '.';
        WHEN lock_not_available THEN
            why := 'This part is missing: another session holds a lock on what it reads.';
        WHEN OTHERS THEN
            why := 'This part is missing: ' || SQLERRM || '.';
            IF SQLSTATE ~ '^(53|58|XX)' THEN
                RAISE LOG 'pgscale report: %: %', part, SQLERRM USING ERRCODE = SQLSTATE;
            END IF;
    END;
    body := pgscale_internal.report_paragraph(format, title, 'part'::text)
            || pgscale_internal.report_paragraph(format, CASE WHEN why IS NULL THEN about END, 'note'::text)
            || CASE WHEN why IS NULL THEN body ELSE pgscale_internal.report_paragraph(format, why, 'missing'::text) END;
    RETURN CASE format WHEN 'html' THEN '<section id="' || part || E'">\n' || body || E'</section>\n' ELSE body END;
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_section(text, text, text, timestamptz, timestamptz, timestamptz, timestamptz, text, text) IS
'part of report: a part with its title, or a sentence with the reason why it is not available';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_section(text, text, text, timestamptz, timestamptz, timestamptz, timestamptz,
    text, text) TO pg_monitor;

-- The name of this server.
CREATE FUNCTION pgscale_internal.report_node()
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT n.node FROM pgscale.node_identity() n);
EXCEPTION
    WHEN insufficient_privilege THEN
        RETURN concat_ws('@', nullif(current_setting('cluster_name'), ''), 'port ' || current_setting('port'));
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_node() IS 'part of report: name of this server';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_node() TO pg_monitor;

-- The period ends now at the latest, and begins with the oldest data at the earliest.
CREATE FUNCTION pgscale_internal.report_period(INOUT since timestamptz, INOUT until timestamptz, node text DEFAULT NULL)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    now CONSTANT timestamptz := clock_timestamp();
BEGIN
    IF since >= now THEN
        RAISE EXCEPTION 'the period of a report must not lie in the future'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Choose one that has begun.';
    END IF;
    until := coalesce(least(until, now), now);
    IF since >= until THEN
        RAISE EXCEPTION 'the period of a report must end after its start'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Swap the two times, or leave one out: since is an hour before until, and until is now.';
    END IF;
    IF until < '2000-01-02 00:00:00+00' THEN
        RAISE EXCEPTION 'nothing is known of a time before the year 2000'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Choose a later period.';
    END IF;
    since := coalesce(since, until - interval '1 hour');
    IF since < '2000-01-01 00:00:00+00' THEN
        BEGIN
            SELECT min(c.at) INTO since FROM pgscale_internal.past_coverage(since, until, node) c;
        EXCEPTION
            -- the library is not preloaded, or another session has locked the archive
            WHEN object_not_in_prerequisite_state OR lock_not_available OR insufficient_privilege THEN since := NULL;
        END;
        since := coalesce(since, until - interval '1 hour');
    END IF;
    IF node IS NOT NULL THEN
        BEGIN
            PERFORM FROM pgscale_internal.past_coverage(until, until, node);
        EXCEPTION
            WHEN object_not_in_prerequisite_state OR lock_not_available THEN NULL;
        END;
    END IF;
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_period(timestamptz, timestamptz, text) IS
'part of report: a period with its defaults, or an error if it is invalid, or there is no such node';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_period(timestamptz, timestamptz, text) TO pg_monitor;

-- Of two periods if a second one is given; of another node only what the archive has.
CREATE FUNCTION pgscale.report(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, format text DEFAULT 'text',
    since2 timestamptz DEFAULT NULL, until2 timestamptz DEFAULT NULL, node text DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
SET DateStyle = 'ISO'
SET IntervalStyle = 'postgres'
SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    two CONSTANT boolean := since2 IS NOT NULL OR until2 IS NOT NULL;
    name CONSTANT text := CASE WHEN two THEN 'pgscale report of two periods: ' ELSE 'pgscale report: ' END || coalesce(nullif(node, ''), pgscale_internal.report_node());
    several boolean := false;
    body text;
    item record;
BEGIN
    node := nullif(node, '');
    IF has_table_privilege('pgscale.archive_nodes', 'SELECT') THEN
        several := (SELECT count(*) > 1 FROM pgscale.archive_nodes n WHERE n.state <> 'gone');
    END IF;
    SELECT p.since, p.until INTO since, until FROM pgscale_internal.report_period(since, until, node) p;
    PERFORM pgscale_internal.past_keep(since, until, node);
    IF two THEN
        SELECT p.since, p.until INTO since2, until2 FROM pgscale_internal.report_period(since2, until2, node) p;
        PERFORM pgscale_internal.past_keep(since2, until2, node);
    END IF;
    body := pgscale_internal.report_paragraph(format, name, 'title'::text);
    FOR item IN
        SELECT *
          FROM (VALUES
            (false, true, 'period', 'Period', NULL),
            (false, true, 'summary', 'Summary', NULL),
            (false, true, 'activity', 'Active sessions', 'Average number, on CPU or waiting, by class of wait event.'),
            (false, true, 'nodes', 'Nodes', 'From the archive. Over time: active sessions' || CASE format WHEN 'html' THEN '; a red line is a change of role.'
                                         ELSE ', 9 for the most of any node, | for a change of role, . for a time that is not known.' END),
            (false, true, 'waits', 'Top waits', 'Sessions: average number. Share: fraction of database time, in which sessions were active or blocked others.'),
            (false, true, 'queries', 'Top queries', NULL),
            (false, true, 'sessions', 'Applications, users and databases', NULL),
            (false, true, 'blockers', 'Root blockers', 'Time that sessions waited for locks, by root blocker.'),
            (false, false, 'advice', 'Advice', 'From the last ten minutes, with the statements that apply it. pgscale.revert() undoes them.'),
            (false, true, 'load', 'The period in numbers', 'From the archive.'),
            (false, false, 'connections', 'Connections', 'At this moment.'),
            (false, false, 'buffers', 'Shared buffers', 'At this moment, from a sample.'),
            (false, false, 'sweeper', 'Sweeper', NULL),
            (false, false, 'writeback', 'Writeback', 'Data that the kernel must still write.'),
            (false, false, 'wal', 'WAL, checkpoints and standbys', NULL),
            (false, false, 'relocation', 'Relocation', NULL),
            (false, false, 'scalability', 'Scalability', 'How many active sessions this server can use, by the Universal Scalability Law.'),
            (false, false, 'health', 'Health of pgscale', NULL),
            (false, false, 'settings', 'Settings', 'Settings that differ from their defaults. Values that may be secret are hidden.'),
            (true, true, 'periods', 'Periods', NULL),
            (true, true, 'activities', 'Active sessions', 'Both to the same scale.'),
            (true, true, 'differences', 'Differences', 'In average active sessions, largest first.'),
            (true, true, 'changes', 'Changes', 'Restarts and changed settings, from the start of the earlier period to the end of the later one.'))
               p (of_two, of_past, part, title, about)
         WHERE p.of_two = two AND (several OR p.part <> 'nodes') AND (node IS NULL OR p.of_past)
    LOOP
        body := body || pgscale_internal.report_section(item.part, item.title, item.about, since, until, since2, until2, format, node);
    END LOOP;
    PERFORM pgscale_internal.past_keep(NULL, NULL);
    RETURN CASE format WHEN 'html' THEN pgscale_internal.report_page(name, body) ELSE body END;
END
$$;
COMMENT ON FUNCTION pgscale.report(timestamptz, timestamptz, text, timestamptz, timestamptz, text) IS
'a period, or two of them side by side, on one page. Errors: invalid_parameter_value, undefined_object for an unknown node
since: start of the period; NULL: an hour before until; -infinity: the oldest data available
until: end of the period, excluded; NULL: now
format: text for psql, at most 120 columns wide, or html for a browser
since2: start of the second period; NULL: an hour before until2; NULL as until2: there is no second period
until2: end of the second period, excluded; NULL: now
node: name in archive_nodes; of another server the archive is read; NULL: this server';
GRANT EXECUTE ON FUNCTION pgscale.report(timestamptz, timestamptz, text, timestamptz, timestamptz, text) TO pg_monitor;
