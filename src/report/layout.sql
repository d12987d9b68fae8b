-- How a report looks is C: each of these has a text for psql and one for a browser.
CREATE FUNCTION pgscale_internal.report_paragraph(format text, value text, style text)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_report_paragraph'
LANGUAGE C VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale_internal.report_paragraph(text, text, text) IS
'part of report: a title, the title of a part, a note, or a sentence';
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
    at timestamptz[], event_type text[], active_sessions double precision[], covered_fraction double precision[],
    mark_at timestamptz[] DEFAULT NULL, mark text[] DEFAULT NULL, most double precision DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_report_chart'
LANGUAGE C VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale_internal.report_chart(text, timestamptz, timestamptz, double precision, timestamptz[], text[],
    double precision[], double precision[], timestamptz[], text[], double precision) IS
'part of report: active sessions over time by class of wait event, as activity() has them, with marks';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_chart(text, timestamptz, timestamptz, double precision, timestamptz[], text[],
    double precision[], double precision[], timestamptz[], text[], double precision) TO pg_monitor;

-- The frame of a page: no script, nothing from elsewhere.
CREATE FUNCTION pgscale_internal.report_page(title text, body text)
RETURNS text
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $page$
    SELECT $html$<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>$html$ || replace(replace(replace(pgscale_internal.report_paragraph('html'::text, title, ''::text), '<p>', ''), '</p>', ''), E'\n', '') || $html$</title>
<style>
:root{--bg:#fff;--card:#fff;--fg:#1c2330;--dim:#66707f;--line:#e3e7ec;--soft:#f4f6f8;--acc:#2f6fd0;--mark:#b3261e;
--w0:#3f9c62;--w1:#3b78d0;--w2:#8f5bc4;--w3:#d2483f;--w4:#22a3a8;--w5:#dd9f1f;--w6:#8d6a3f;--w7:#8b97a8;--w8:#c9629c;--w9:#a9b2bd;--w10:#e8e2c9}
@media (prefers-color-scheme:dark){:root{--bg:#14181f;--card:#1a1f28;--fg:#dfe4ec;--dim:#97a1b0;--line:#2c3440;--soft:#202733;--acc:#6ea3f0;--mark:#ff8a80;
--w0:#4fb377;--w1:#5a93e6;--w2:#a97be0;--w3:#e8665d;--w4:#35babf;--w5:#e9b344;--w6:#ab8555;--w7:#8b97a8;--w8:#dd7db3;--w9:#6d7885;--w10:#4a4634}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",Arial,sans-serif;-webkit-text-size-adjust:100%}
main{max-width:1080px;margin:0 auto;padding:24px 20px 48px}
h1{font-size:22px;line-height:1.3;margin:0 0 16px;overflow-wrap:anywhere}
h2{font-size:16px;margin:0 0 4px}
section{margin:0 0 28px;padding:20px 0 0;border-top:1px solid var(--line)}
#period,#periods{border-top:0;padding-top:0}#period h2{display:none}
p{margin:4px 0 10px;max-width:76ch;overflow-wrap:anywhere}
p.m{color:var(--dim);font-size:13px}
p.x{color:var(--dim);background:var(--soft);border-left:3px solid var(--line);padding:8px 12px}
h3{font-size:13px;margin:18px 0 2px;color:var(--dim);font-weight:600}
table{border-collapse:collapse;width:100%;margin:8px 0 12px;font-variant-numeric:tabular-nums}
th{font-size:12px;font-weight:600;color:var(--dim);text-align:left;vertical-align:bottom;padding:4px 16px 4px 0;border-bottom:1px solid var(--line)}
td{padding:5px 16px 5px 0;vertical-align:top;border-bottom:1px solid var(--line);overflow-wrap:anywhere}
tr>:last-child{padding-right:0}
th.n,td.n{text-align:right;white-space:nowrap}
td.w{min-width:7em}
td.p{min-width:14em;max-width:40em}
th.s,td.s{white-space:nowrap;width:152px;text-align:right}
.b{float:left;width:64px;height:8px;margin:7px 8px 0 0;background:var(--soft);border-radius:2px;overflow:hidden}
.b i{display:block;height:100%;background:var(--acc)}
code,pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
td.q{min-width:18em}
td.c code{user-select:all;background:var(--soft);padding:2px 6px;border-radius:3px;-webkit-box-decoration-break:clone;box-decoration-break:clone}
summary{cursor:pointer}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--soft);padding:10px 12px;border-radius:4px;margin:6px 0}
figure{margin:12px 0 8px}
.chart{position:relative;margin:0 0 34px 34px;padding-top:20px}
.chart svg{display:block;width:100%;height:230px;border-left:1px solid var(--line);border-bottom:1px solid var(--line)}
.chart path.grid{stroke:var(--line);stroke-width:1;fill:none;vector-effect:non-scaling-stroke}
.chart path.cpus{stroke:var(--fg);stroke-width:1.3;stroke-dasharray:5 4;fill:none;vector-effect:non-scaling-stroke}
.chart path.mark{stroke:var(--mark);stroke-width:1.3;fill:none;vector-effect:non-scaling-stroke}
.chart path.gap{fill:var(--soft)}
.chart rect{fill:transparent}.chart rect:hover{fill:var(--fg);fill-opacity:.12}
.chart .y,.chart .x,.chart .n{font-size:11px;color:var(--dim)}
.chart .y{position:absolute;left:-34px;width:28px;top:20px;height:230px;text-align:right}
.chart .y span{position:absolute;right:0;transform:translateY(50%);line-height:1}
.chart .x span{position:absolute;top:254px;transform:translateX(-50%);white-space:nowrap}
.chart .n span{position:absolute;top:0;transform:translateX(-50%);min-width:16px;text-align:center;line-height:16px;border-radius:8px;background:var(--mark);color:var(--bg);font-size:10px;font-weight:600;padding:0 3px}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 16px;margin:0 0 8px 34px;padding:0;font-size:13px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px;vertical-align:-1px}
.legend i.gap{background:var(--soft);border:1px solid var(--line)}
.legend i.cpus{height:0;border-top:2px dashed var(--fg);border-radius:0;vertical-align:3px;width:14px}
.legend b{font-weight:600}
.marks{margin:0 0 8px 34px;padding-left:18px;font-size:13px;color:var(--dim)}
.marks b{color:var(--fg);font-weight:600;font-variant-numeric:tabular-nums}
path.w0{fill:var(--w0)}i.w0{background:var(--w0)}path.w1{fill:var(--w1)}i.w1{background:var(--w1)}
path.w2{fill:var(--w2)}i.w2{background:var(--w2)}path.w3{fill:var(--w3)}i.w3{background:var(--w3)}
path.w4{fill:var(--w4)}i.w4{background:var(--w4)}path.w5{fill:var(--w5)}i.w5{background:var(--w5)}
path.w6{fill:var(--w6)}i.w6{background:var(--w6)}path.w7{fill:var(--w7)}i.w7{background:var(--w7)}
path.w8{fill:var(--w8)}i.w8{background:var(--w8)}path.w9{fill:var(--w9)}i.w9{background:var(--w9)}
path.w10{fill:var(--w10)}i.w10{background:var(--w10)}
.two{display:grid;grid-template-columns:1fr 1fr;gap:24px}
@media (max-width:700px){
main{padding:16px 14px 32px}
.two{grid-template-columns:1fr}
.chart .x span:nth-child(even){display:none}
thead{display:none}
table,tbody,tr,td{display:block;width:auto!important}
tr{padding:8px 0;border-bottom:1px solid var(--line);display:flex;flex-wrap:wrap;gap:2px 18px}
td{border:0;padding:0;text-align:left!important;min-width:0!important;max-width:100%}
td.e{display:none}
td:first-child{flex:1 0 100%;font-weight:600}
td.p,td.q,td.c{flex:1 0 100%}
td:not(:first-child)::before{content:attr(data-t) " ";color:var(--dim);font-size:12px;font-weight:400}
td:first-child.n::before,td:first-child.s::before{content:attr(data-t) " ";color:var(--dim);font-size:12px;font-weight:400}
.b{margin:6px 8px 0 0}
td.s{width:auto}
}
@media print{
:root{--bg:#fff;--fg:#000;--dim:#444}
main{max-width:none;padding:0}
body{font-size:11px}
section{break-inside:auto}h2,figure,tr{break-inside:avoid}h2{break-after:avoid}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
}
</style>
</head>
<body>
<main>
$html$ || body || $html$</main>
</body>
</html>
$html$
$page$;
COMMENT ON FUNCTION pgscale_internal.report_page(text, text) IS
'part of report: one self-contained page of HTML';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_page(text, text) TO pg_monitor;
