-- The layout of a report is C: each function returns a text for psql or one for a browser.
CREATE FUNCTION pgscale_internal.report_paragraph(format text, value text, style text)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_report_paragraph'
LANGUAGE C VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale_internal.report_paragraph(text, text, text) IS 'part of report: a title, the title of a part, a note, or a sentence';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_paragraph(text, text, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_table(format text, titles text[], kinds text[], cells text[])
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_report_table'
LANGUAGE C VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale_internal.report_table(text, text[], text[], text[]) IS
'part of report: a table of columns with titles and kinds, and cells row by row';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_table(text, text[], text[], text[]) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_chart(
    format text, since timestamptz, until timestamptz, bucket_s double precision,
    at timestamptz[], event_type text[], active_sessions double precision[], coverage_fraction double precision[],
    mark_at timestamptz[] DEFAULT NULL, mark text[] DEFAULT NULL, most double precision DEFAULT NULL, cpus boolean DEFAULT true)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_report_chart'
LANGUAGE C VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale_internal.report_chart(text, timestamptz, timestamptz, double precision, timestamptz[], text[],
    double precision[], double precision[], timestamptz[], text[], double precision, boolean) IS
'part of report: active sessions over time by class of wait event, as activity() has them, with marks and this server''s CPUs';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_chart(text, timestamptz, timestamptz, double precision, timestamptz[], text[],
    double precision[], double precision[], timestamptz[], text[], double precision, boolean) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_page(title text, body text)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_report_page'
LANGUAGE C VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale_internal.report_page(text, text) IS 'part of report: one self-contained page of HTML';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_page(text, text) TO pg_monitor;
