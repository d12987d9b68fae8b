-- The rows of pgscale's tables are about this server, and no other has a use for them; but a publication FOR ALL TABLES
-- includes them.  A subscriber without pgscale would stop at the first row, and one with pgscale at the first equal key.
-- So nothing is sent: logical decoding skips tables that are marked as a rewrite of another one.  And nothing is taken: a
-- trigger, which fires where replication writes and nowhere else, drops what the first copy of a subscription brings.
--
-- No catalog says "never publish this".  Unlogged tables are left out, but are empty after a crash and on standbys; 19 has
-- EXCEPT, but only the publication's owner can write it, and who adds a table later does not.  A later major may decode
-- marked tables, too: then rows are sent again, which t/pgscale_logical_replication.pl sees.
CREATE FUNCTION pgscale_internal.keep_local()
RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH own AS (
        SELECT c.oid, c.reltoastrelid
          FROM pg_extension e
          JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
               AND d.classid = 'pg_class'::regclass AND d.deptype = 'e'
          JOIN pg_class c ON c.oid = d.objid AND c.relkind IN ('r', 'p')
         WHERE e.extname = 'pgscale')
    UPDATE pg_class c SET relrewrite = c.oid
     WHERE c.relrewrite = 0 AND c.oid IN (SELECT o.oid FROM own o UNION ALL SELECT o.reltoastrelid FROM own o)
$$;
COMMENT ON FUNCTION pgscale_internal.keep_local() IS 'marks the tables of pgscale so that logical decoding skips their rows';

-- Every role that may call health() calls this, too. So it calls no other function of pgscale: that role may lack EXECUTE on it.
CREATE FUNCTION pgscale_internal.published()
RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('publication "%s" includes its tables', p.pubname)
      FROM pg_extension e
      JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
           AND d.classid = 'pg_class'::regclass AND d.deptype = 'e'
      JOIN pg_class c ON c.oid = d.objid AND c.relkind IN ('r', 'p')
     CROSS JOIN pg_publication p
      LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
     WHERE e.extname = 'pgscale'
       -- 19 knows tables that a publication leaves out
       AND CASE WHEN r.oid IS NOT NULL THEN (to_jsonb(r) ->> 'prexcept') IS DISTINCT FROM 'true'
                -- a day of the archive is included with its parent
                WHEN c.relispartition THEN false
                ELSE p.puballtables OR EXISTS (SELECT FROM pg_publication_namespace n
                                                WHERE n.pnpubid = p.oid AND n.pnnspid = c.relnamespace) END
     ORDER BY p.pubname LIMIT 1
$$;
COMMENT ON FUNCTION pgscale_internal.published() IS
'a publication of this database that includes tables of pgscale, in a sentence; NULL if there is none';

CREATE FUNCTION pgscale_internal.discard_replicated()
RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION pgscale_internal.discard_replicated() IS
'trigger on the tables of pgscale: drops rows that logical replication brings from another server';

DO $$
DECLARE
    own regclass;
    published text;
BEGIN
    FOR own IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'pgscale_internal'::regnamespace AND c.relkind IN ('r', 'p') LOOP
        EXECUTE format('CREATE TRIGGER discard_replicated BEFORE INSERT OR UPDATE OR DELETE ON %s
            FOR EACH ROW EXECUTE FUNCTION pgscale_internal.discard_replicated()', own);
        EXECUTE format('ALTER TABLE %s ENABLE REPLICA TRIGGER discard_replicated', own);
    END LOOP;
    PERFORM pgscale_internal.keep_local();
    published := pgscale_internal.published();
    IF published IS NOT NULL THEN
        RAISE WARNING 'pgscale: %', published
            USING HINT = 'Subscriptions that exist go on. A new one, and REFRESH PUBLICATION, need these tables there: see "Logical replication" in doc/operations.md.';
    END IF;
END
$$;
