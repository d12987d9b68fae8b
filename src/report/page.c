/*-------------------------------------------------------------------------
 *
 * page.c
 *	  The frame of an HTML page, with its style.
 *
 * A page is one file that needs no other and loads nothing: no script, no font, no
 * image, and a policy that forbids them.  Its style suits light and dark screens,
 * narrow screens and paper.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "base/pg_compat.h"
#include "report/report.h"

static const char page_head[] =
"<!DOCTYPE html>\n"
"<html lang=\"en\">\n"
"<head>\n"
"<meta charset=\"utf-8\">\n"
"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
"<meta name=\"color-scheme\" content=\"light dark\">\n"
"<meta name=\"referrer\" content=\"no-referrer\">\n"
"<title>";

static const char page_style[] =
"</title>\n"
"<style>\n"
":root{--bg:#fff;--card:#fff;--fg:#1c2330;--dim:#66707f;--line:#e3e7ec;--soft:#f4f6f8;--acc:#2f6fd0;--mark:#b3261e;\n"
"--w0:#3f9c62;--w1:#3b78d0;--w2:#8f5bc4;--w3:#d2483f;--w4:#22a3a8;--w5:#dd9f1f;--w6:#8d6a3f;--w7:#8b97a8;--w8:#c9629c;--w9:#a9b2bd;--w10:#e8e2c9}\n"
"@media (prefers-color-scheme:dark){:root{--bg:#14181f;--card:#1a1f28;--fg:#dfe4ec;--dim:#97a1b0;--line:#2c3440;--soft:#202733;--acc:#6ea3f0;--mark:#ff8a80;\n"
"--w0:#4fb377;--w1:#5a93e6;--w2:#a97be0;--w3:#e8665d;--w4:#35babf;--w5:#e9b344;--w6:#ab8555;--w7:#8b97a8;--w8:#dd7db3;--w9:#6d7885;--w10:#4a4634}}\n"
"*{box-sizing:border-box}\n"
"body{margin:0;background:var(--bg);color:var(--fg);font:14px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,\"Liberation Sans\",Arial,sans-serif;-webkit-text-size-adjust:100%}\n"
"main{max-width:1080px;margin:0 auto;padding:24px 20px 48px}\n"
"h1{font-size:22px;line-height:1.3;margin:0 0 16px;overflow-wrap:anywhere}\n"
"h2{font-size:16px;margin:0 0 4px}\n"
"section{margin:0 0 28px;padding:20px 0 0;border-top:1px solid var(--line)}\n"
"#period,#periods{border-top:0;padding-top:0}#period h2{display:none}\n"
"p{margin:4px 0 10px;max-width:76ch;overflow-wrap:anywhere}\n"
"p.m{color:var(--dim);font-size:13px}\n"
"p.x{color:var(--dim);background:var(--soft);border-left:3px solid var(--line);padding:8px 12px}\n"
"h3{font-size:13px;margin:18px 0 2px;color:var(--dim);font-weight:600}\n"
"table{border-collapse:collapse;width:100%;margin:8px 0 12px;font-variant-numeric:tabular-nums}\n"
"th{font-size:12px;font-weight:600;color:var(--dim);text-align:left;vertical-align:bottom;padding:4px 16px 4px 0;border-bottom:1px solid var(--line)}\n"
"td{padding:5px 16px 5px 0;vertical-align:top;border-bottom:1px solid var(--line);overflow-wrap:anywhere}\n"
"tr>:last-child{padding-right:0}\n"
"th.n,td.n{text-align:right;white-space:nowrap}\n"
"td.w{min-width:5em}\n"
"td.p{min-width:11em;max-width:40em}\n"
"th.s,td.s{white-space:nowrap;width:152px;min-width:132px;text-align:right}\n"
".b{float:left;width:64px;height:8px;margin:7px 8px 0 0;background:var(--soft);border-radius:2px;overflow:hidden}\n"
".b i{display:block;height:100%;background:var(--acc)}\n"
"code,pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,\"Liberation Mono\",monospace}\n"
"td.q{min-width:18em}\n"
"td.c code{user-select:all;background:var(--soft);padding:2px 6px;border-radius:3px;-webkit-box-decoration-break:clone;box-decoration-break:clone}\n"
"summary{cursor:pointer}\n"
"pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--soft);padding:10px 12px;border-radius:4px;margin:6px 0}\n"
"figure{margin:12px 0 8px}\n"
".chart{position:relative;margin:0 0 34px 34px;padding-top:20px}\n"
".chart svg{display:block;width:100%;height:230px;border-left:1px solid var(--line);border-bottom:1px solid var(--line)}\n"
".chart path.grid{stroke:var(--line);stroke-width:1;fill:none;vector-effect:non-scaling-stroke}\n"
".chart path.cpus{stroke:var(--fg);stroke-width:1.3;stroke-dasharray:5 4;fill:none;vector-effect:non-scaling-stroke}\n"
".chart path.mark,td.l path.mark{stroke:var(--mark);stroke-width:1.3;fill:none;vector-effect:non-scaling-stroke}\n"
".chart rect{fill:transparent}.chart rect:hover{fill:var(--fg);fill-opacity:.12}\n"
".chart .y,.chart .x,.chart .n{font-size:11px;color:var(--dim)}\n"
".chart .y{position:absolute;left:-34px;width:28px;top:20px;height:230px;text-align:right}\n"
".chart .y span{position:absolute;right:0;transform:translateY(50%);line-height:1}\n"
".chart .x span{position:absolute;top:254px;transform:translateX(-50%);white-space:nowrap}\n"
".chart .n span{position:absolute;top:0;transform:translateX(-50%);min-width:16px;text-align:center;line-height:16px;border-radius:8px;background:var(--mark);color:var(--bg);font-size:10px;font-weight:600;padding:0 3px}\n"
".chart path.gap,td.l path.gap{fill:var(--soft)}td.l path.level{fill:var(--acc)}\n"
"td.l svg{display:block;width:240px;height:26px;border-bottom:1px solid var(--line)}\n"
".legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 16px;margin:0 0 8px 34px;padding:0;font-size:13px}\n"
".legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px;vertical-align:-1px}\n"
".legend i.gap{background:var(--soft);border:1px solid var(--line)}\n"
".legend i.cpus{height:0;border-top:2px dashed var(--fg);border-radius:0;vertical-align:3px;width:14px}\n"
".legend b{font-weight:600}\n"
".marks{margin:0 0 8px 34px;padding-left:18px;font-size:13px;color:var(--dim)}\n"
".marks b{color:var(--fg);font-weight:600;font-variant-numeric:tabular-nums}\n"
"path.w0{fill:var(--w0)}i.w0{background:var(--w0)}path.w1{fill:var(--w1)}i.w1{background:var(--w1)}\n"
"path.w2{fill:var(--w2)}i.w2{background:var(--w2)}path.w3{fill:var(--w3)}i.w3{background:var(--w3)}\n"
"path.w4{fill:var(--w4)}i.w4{background:var(--w4)}path.w5{fill:var(--w5)}i.w5{background:var(--w5)}\n"
"path.w6{fill:var(--w6)}i.w6{background:var(--w6)}path.w7{fill:var(--w7)}i.w7{background:var(--w7)}\n"
"path.w8{fill:var(--w8)}i.w8{background:var(--w8)}path.w9{fill:var(--w9)}i.w9{background:var(--w9)}\n"
"path.w10{fill:var(--w10)}i.w10{background:var(--w10)}\n"
".two{display:grid;grid-template-columns:1fr 1fr;gap:24px}\n"
"@media (max-width:700px){\n"
"main{padding:16px 14px 32px}\n"
".two{grid-template-columns:1fr}\n"
".chart .x span:nth-child(even){display:none}\n"
"thead{display:none}\n"
"table,tbody,tr,td{display:block;width:auto!important}\n"
"tr{padding:8px 0;border-bottom:1px solid var(--line);display:flex;flex-wrap:wrap;gap:2px 18px}\n"
"td{border:0;padding:0;text-align:left!important;min-width:0!important;max-width:100%}\n"
"td.e{display:none}\n"
"td:first-child{flex:1 0 100%;font-weight:600}\n"
"td.p,td.q,td.c{flex:1 0 100%}\n"
"td:not(:first-child)::before{content:attr(data-t) \" \";color:var(--dim);font-size:12px;font-weight:400}\n"
"td:first-child.n::before,td:first-child.s::before{content:attr(data-t) \" \";color:var(--dim);font-size:12px;font-weight:400}\n"
".b{margin:6px 8px 0 0}\n"
"td.s{width:auto}\n"
"}\n"
"@media print{\n"
":root{--bg:#fff;--fg:#000;--dim:#444}\n"
"main{max-width:none;padding:0}\n"
"body{font-size:11px}\n"
"section{break-inside:auto}h2,figure,tr{break-inside:avoid}h2{break-after:avoid}\n"
"*{-webkit-print-color-adjust:exact;print-color-adjust:exact}\n"
"}\n"
"</style>\n"
"</head>\n"
"<body>\n"
"<main>\n";

static const char page_end[] =
"</main>\n"
"</body>\n"
"</html>\n";

PG_FUNCTION_INFO_V1(pgscale_report_page);

/* pgscale_internal.report_page(title, body): NULL without a body, which is HTML already. */
Datum
pgscale_report_page(PG_FUNCTION_ARGS)
{
	text	   *body;
	StringInfoData out;

	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	body = PG_GETARG_TEXT_PP(1);
	initStringInfo(&out);
	appendStringInfoString(&out, page_head);
	if (!PG_ARGISNULL(0))
		pgscale_report_text_put_html(&out, pgscale_report_text_of(PG_GETARG_TEXT_PP(0), 2000, false));
	appendStringInfoString(&out, page_style);
	appendBinaryStringInfo(&out, VARDATA_ANY(body), VARSIZE_ANY_EXHDR(body));
	appendStringInfoString(&out, page_end);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
