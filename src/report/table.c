/*-------------------------------------------------------------------------
 *
 * table.c
 *	  Paragraphs and tables, for psql or for a browser.
 *
 * A table is columns, each with a title and a kind, and cells row by row.  The kind says
 * how a cell is shown: figures come as the server writes numbers, and get their units and
 * places here, so that all tables agree.
 *
 * For psql a table has at most PGSCALE_REPORT_WIDTH columns.  What does not fit is taken
 * from the widest columns of text: they wrap or are cut, figures never are.
 *
 * For a browser, each cell carries its column's title, too, so that the page's style can
 * make each row a card on a narrow screen.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>

#include "catalog/pg_type_d.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/float.h"

#include "base/texts.h"
#include "report/report.h"

PG_FUNCTION_INFO_V1(pgscale_report_paragraph);
PG_FUNCTION_INFO_V1(pgscale_report_table);

/* What is shown at most, whatever there is. */
#define MOST_COLUMNS	16
#define MOST_ROWS	200
#define MOST_LINES	12			/* of a cell, for psql */

#define MARGIN	2				/* left of a table, and between its columns */
#define LEAST_WIDTH	12			/* of a column that had to give way */

typedef enum CellKind
{
	CELL_NAME,					/* one line, cut */
	CELL_PROSE,					/* sentences: wrapped */
	CELL_STATEMENT,				/* to copy: wrapped, never cut */
	CELL_QUERY,					/* one line, cut; a browser can open it */
	CELL_COUNT,					/* 1,234,567 */
	CELL_NUMBER,				/* 12.35 */
	CELL_CHANGE,				/* +12.35 */
	CELL_SHARE,					/* 0.123 is 12.3 %, with a bar */
	CELL_MS,					/* a duration, in a suitable unit */
	CELL_BYTES,					/* a size, in a suitable unit */
	CELL_LEVELS,				/* 0 to 9 over time; .: unknown; |: a mark */
} CellKind;

static const struct
{
	const char *name;
	const char *style;			/* its class in HTML */
	int			most;			/* characters of a cell */
	bool		figure;
}			cell_kinds[] = {
	[CELL_NAME] = {"name", "w", 100, false},
	[CELL_PROSE] = {"prose", "p", 1000, false},
	[CELL_STATEMENT] = {"statement", "c", 1000, false},
	[CELL_QUERY] = {"query", "q", 2000, false},
	[CELL_COUNT] = {"count", "n", 100, true},
	[CELL_NUMBER] = {"number", "n", 100, true},
	[CELL_CHANGE] = {"change", "n", 100, true},
	[CELL_SHARE] = {"share", "s", 100, true},
	[CELL_MS] = {"ms", "n", 100, true},
	[CELL_BYTES] = {"bytes", "n", 100, true},
	[CELL_LEVELS] = {"levels", "l", 100, false},
};

typedef struct ReportColumn
{
	const char *title;
	CellKind	kind;
	int			width;
} ReportColumn;

typedef struct ReportTable
{
	ReportColumn columns[MOST_COLUMNS];
	int			ncolumns;
	bool		titled;			/* any of them has a title */
	int			nrows;
	int			left_out;		/* rows beyond MOST_ROWS */
	const char **cells;			/* UTF-8; "" for NULL */
	double	   *figures;		/* NaN where a cell is none */
} ReportTable;

static CellKind
cell_kind_of(const char *name)
{
	for (int i = 0; i < lengthof(cell_kinds); i++)
		if (strcmp(cell_kinds[i].name, name) == 0)
			return i;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown kind of column \"%s\"", name),
			 errhint("Kinds are name, prose, statement, query, count, number, change, share, ms, bytes and levels.")));
}

/* A number with a comma before each three digits. */
static char *
figure_grouped(double value)
{
	char		digits[64];
	int			len = snprintf(digits, sizeof(digits), "%.0f", fabs(value));
	StringInfoData out;

	initStringInfo(&out);
	if (value < 0)
		appendStringInfoChar(&out, '-');
	for (int i = 0; i < len; i++)
	{
		if (i > 0 && (len - i) % 3 == 0)
			appendStringInfoChar(&out, ',');
		appendStringInfoChar(&out, digits[i]);
	}
	return out.data;
}

static char *
figure_in_units(double value, const double *sizes, const char *const *names, int n)
{
	int			i = 0;

	while (i + 1 < n && fabs(value) >= sizes[i + 1])
		i++;
	value /= sizes[i];
	if (fabs(value) >= 1e6)
		return psprintf("%.1e %s", value, names[i]);
	return psprintf("%.*f %s", value == rint(value) || fabs(value) >= 100 ? 0 : 1, value, names[i]);
}

static char *
figure_shown(CellKind kind, double value)
{
	static const double times[] = {1e-3, 0.9995, 999.5, 120e3, 7200e3, 172800e3};
	static const double time_units[] = {1e-3, 1, 1e3, 60e3, 3600e3, 86400e3};
	static const char *const time_names[] = {"us", "ms", "s", "min", "h", "d"};
	static const double sizes[] = {1, 1024.0, 1048576.0, 1073741824.0, 1099511627776.0};
	static const char *const size_names[] = {"B", "kB", "MB", "GB", "TB"};
	int			unit = 0;

	if (!isfinite(value) || fabs(value) >= 1e30)
		return pstrdup("-");
	switch (kind)
	{
		case CELL_COUNT:
			return figure_grouped(rint(value));
		case CELL_NUMBER:
			if (fabs(value) >= 1000)
				return figure_grouped(value);
			return psprintf("%.2f", value);
		case CELL_CHANGE:
			if (fabs(value) < 0.005)
				return pstrdup("0.00");
			return psprintf("%+.2f", value);
		case CELL_SHARE:
			return psprintf("%.1f %%", 100 * value);
		case CELL_BYTES:
			return figure_in_units(value, sizes, size_names, lengthof(sizes));
		case CELL_MS:
			if (value == 0)
				return pstrdup("0");
			while (unit + 1 < lengthof(times) && fabs(value) >= times[unit + 1])
				unit++;
			if (fabs(value / time_units[unit]) >= 1e6)
				return psprintf("%.1e %s", value / time_units[unit], time_names[unit]);
			return psprintf("%.*f %s", fabs(value / time_units[unit]) >= 100 ? 0 : 1, value / time_units[unit],
							time_names[unit]);
		default:
			return pstrdup("-");
	}
}

static double
figure_read(const char *text)
{
	char	   *end;
	double		value;

	if (!*text)
		return get_float8_nan();
	value = strtod(text, &end);
	return *end ? get_float8_nan() : value;
}

/* The elements of a text[] argument, NULL for NULL. */
static text **
read_texts(FunctionCallInfo fcinfo, int argument, int *n)
{
	Datum	   *values;
	bool	   *nulls;
	text	  **texts;

	*n = 0;
	if (PG_ARGISNULL(argument))
		return NULL;
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(argument), TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, n);
	texts = palloc(Max(*n, 1) * sizeof(text *));
	for (int i = 0; i < *n; i++)
		texts[i] = nulls[i] ? NULL : DatumGetTextPP(values[i]);
	return texts;
}

static void
read_table(FunctionCallInfo fcinfo, bool html, ReportTable *table)
{
	int			ntitles;
	int			nkinds;
	int			ncells;
	text	  **titles = read_texts(fcinfo, 1, &ntitles);
	text	  **kinds = read_texts(fcinfo, 2, &nkinds);
	text	  **cells = read_texts(fcinfo, 3, &ncells);

	if (ntitles < 1 || ntitles > MOST_COLUMNS || nkinds != ntitles || ncells % ntitles != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("titles, kinds and cells of a table differ in number"),
				 errhint("Each column has a title and a kind, at most %d have room, and each row has a cell for each.",
						 MOST_COLUMNS)));
	table->ncolumns = ntitles;
	table->nrows = Min(ncells / ntitles, MOST_ROWS);
	table->left_out = ncells / ntitles - table->nrows;
	for (int i = 0; i < ntitles; i++)
	{
		table->columns[i].title = titles[i] ? pgscale_report_text_of(titles[i], 40, false) : "";
		table->titled = table->titled || *table->columns[i].title;
		table->columns[i].kind = cell_kind_of(kinds[i] ? text_to_cstring(kinds[i]) : "null");
	}
	table->cells = palloc0(Max(table->nrows * ntitles, 1) * sizeof(const char *));
	table->figures = palloc0(Max(table->nrows * ntitles, 1) * sizeof(double));
	for (int i = 0; i < table->nrows * ntitles; i++)
	{
		const CellKind kind = table->columns[i % ntitles].kind;
		bool		lines = html && (kind == CELL_QUERY || kind == CELL_STATEMENT);

		CHECK_FOR_INTERRUPTS();
		table->cells[i] = cells[i] ? pgscale_report_text_of(cells[i], cell_kinds[kind].most, lines) : "";
		table->figures[i] = get_float8_nan();
		if (cell_kinds[kind].figure)
		{
			table->figures[i] = figure_read(table->cells[i]);
			table->cells[i] = *table->cells[i] ? figure_shown(kind, table->figures[i]) : "";
		}
	}
}

/* ---- for psql ---- */

static void
put_spaces(StringInfo out, int n)
{
	if (n > 0)
		appendStringInfoSpaces(out, n);
}

/* Ends a line, without the spaces at its end. */
static void
end_line(StringInfo out)
{
	while (out->len > 0 && out->data[out->len - 1] == ' ')
		out->data[--out->len] = '\0';
	appendStringInfoChar(out, '\n');
}

/* A statement cannot wrap, so it gives way later. */
static int
column_claim(const ReportColumn *column)
{
	return column->width - (column->kind == CELL_QUERY ? 20 : 0);
}

static void
fit_columns(ReportTable *table)
{
	int			room = PGSCALE_REPORT_WIDTH - MARGIN * (table->ncolumns + 1) + MARGIN;

	for (int c = 0; c < table->ncolumns; c++)
	{
		ReportColumn *column = &table->columns[c];

		column->width = pgscale_report_text_width(column->title, strlen(column->title));
		for (int r = 0; r < table->nrows; r++)
		{
			const char *cell = table->cells[r * table->ncolumns + c];

			column->width = Max(column->width, pgscale_report_text_width(cell, strlen(cell)));
		}
		room -= column->width;
	}
	while (room < 0)
	{
		ReportColumn *widest = NULL;

		for (int c = 0; c < table->ncolumns; c++)
		{
			ReportColumn *column = &table->columns[c];

			if (!cell_kinds[column->kind].figure && column->kind != CELL_LEVELS && column->width > LEAST_WIDTH &&
				(!widest || column_claim(column) > column_claim(widest)))
				widest = column;
		}
		if (!widest)
			break;
		widest->width--;
		room++;
	}
}

/*
 * Puts what fits of a cell into its column, and returns what is left of it, or NULL.
 */
static const char *
put_cell(StringInfo out, const ReportColumn *column, const char *cell, bool last_line)
{
	bool		wraps = column->kind == CELL_PROSE || column->kind == CELL_STATEMENT;
	int			width = pgscale_report_text_width(cell, strlen(cell));
	int			len = strlen(cell);
	const char *more = NULL;
	bool		cut = false;

	if (width > column->width)
	{
		cut = !wraps || (last_line && column->kind == CELL_PROSE);
		len = pgscale_report_text_fit(cell, column->width - (cut ? 3 : 0), !cut);
		more = cut ? NULL : cell + len;
		while (more && *more == ' ')
			more++;
	}
	width = pgscale_report_text_width(cell, len) + (cut ? 3 : 0);
	if (cell_kinds[column->kind].figure)
		put_spaces(out, column->width - width);
	pgscale_text_put(out, cell, len);
	if (cut)
		appendStringInfoString(out, "...");
	if (!cell_kinds[column->kind].figure)
		put_spaces(out, column->width - width);
	return more && *more ? more : NULL;
}

static void
put_plain_table(StringInfo out, ReportTable *table)
{
	fit_columns(table);

	if (table->titled)
	{
		appendStringInfoChar(out, '\n');
		for (int c = 0; c < table->ncolumns; c++)
		{
			const ReportColumn *column = &table->columns[c];

			put_spaces(out, MARGIN);
			put_cell(out, column, column->title, true);
		}
		end_line(out);
		for (int c = 0; c < table->ncolumns; c++)
		{
			put_spaces(out, MARGIN);
			for (int i = 0; i < table->columns[c].width; i++)
				appendStringInfoChar(out, '-');
		}
		end_line(out);
	}
	for (int r = 0; r < table->nrows; r++)
	{
		const char *left[MOST_COLUMNS];
		bool		more = true;

		for (int c = 0; c < table->ncolumns; c++)
			left[c] = table->cells[r * table->ncolumns + c];
		for (int line = 1; more; line++)
		{
			CHECK_FOR_INTERRUPTS();
			more = false;
			for (int c = 0; c < table->ncolumns; c++)
			{
				put_spaces(out, MARGIN);
				if (left[c])
					left[c] = put_cell(out, &table->columns[c], left[c], line == MOST_LINES);
				else
					put_spaces(out, table->columns[c].width);
				more = more || left[c];
			}
			end_line(out);
		}
	}
	if (table->left_out > 0)
		appendStringInfo(out, "  and %d more\n", table->left_out);
}

/* ---- for a browser ---- */

/* A statement in one line that opens to the whole. */
static void
put_html_query(StringInfo out, const char *query)
{
	char	   *line = pgscale_text_read(query, strlen(query), PG_UTF8, INT_MAX, false);
	int			len = pgscale_report_text_fit(line, 90, false);

	if (line[len] == '\0')
	{
		appendStringInfoString(out, "<code>");
		pgscale_report_text_put_html(out, line);
		appendStringInfoString(out, "</code>");
		return;
	}
	line[len] = '\0';
	appendStringInfoString(out, "<details><summary><code>");
	pgscale_report_text_put_html(out, line);
	appendStringInfoString(out, "&#8230;</code></summary><pre>");
	pgscale_report_text_put_html(out, query);
	appendStringInfoString(out, "</pre></details>");
}

/* Columns, gaps and marks, each of a path, in a picture that is stretched. */
static void
put_html_levels(StringInfo out, const char *levels)
{
	static const char *const classes[] = {"level", "gap", "mark"};

	appendStringInfo(out, "<svg viewBox=\"0 0 %d 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"%s\">",
					 Max((int) strlen(levels), 1), levels);
	for (int class = 0; class < lengthof(classes); class++)
	{
		appendStringInfo(out, "<path class=\"%s\" d=\"", classes[class]);
		for (int x = 0; levels[x]; x++)
			if (class == 2 && levels[x] == '|')
				appendStringInfo(out, "M%d.5 0V10", x);
			else if (class == 1 && levels[x] == '.')
				appendStringInfo(out, "M%d 0h1V10h-1z", x);
			else if (class == 0 && isdigit((unsigned char) levels[x]))
				appendStringInfo(out, "M%d 10v-%c.5h1V10z", x, levels[x]);
		appendStringInfoString(out, "\"/>");
	}
	appendStringInfoString(out, "</svg>");
}

static void
put_html_table(StringInfo out, const ReportTable *table)
{
	appendStringInfoString(out, "<table>");
	if (table->titled)
	{
		appendStringInfoString(out, "<thead><tr>");
		for (int c = 0; c < table->ncolumns; c++)
		{
			appendStringInfo(out, "<th class=\"%s\">", cell_kinds[table->columns[c].kind].style);
			pgscale_report_text_put_html(out, table->columns[c].title);
			appendStringInfoString(out, "</th>");
		}
		appendStringInfoString(out, "</tr></thead>");
	}
	appendStringInfoString(out, "<tbody>\n");
	for (int r = 0; r < table->nrows; r++)
	{
		CHECK_FOR_INTERRUPTS();
		appendStringInfoString(out, "<tr>");
		for (int c = 0; c < table->ncolumns; c++)
		{
			const ReportColumn *column = &table->columns[c];
			const char *cell = table->cells[r * table->ncolumns + c];
			double		figure = table->figures[r * table->ncolumns + c];

			appendStringInfo(out, "<td class=\"%s%s\" data-t=\"", cell_kinds[column->kind].style, *cell ? "" : " e");
			pgscale_report_text_put_html(out, column->title);
			appendStringInfoString(out, "\">");
			if (!*cell)
				;
			else if (column->kind == CELL_QUERY)
				put_html_query(out, cell);
			else if (column->kind == CELL_LEVELS && strspn(cell, "0123456789.|") == strlen(cell))
				put_html_levels(out, cell);
			else if (column->kind == CELL_STATEMENT)
			{
				appendStringInfoString(out, "<code>");
				pgscale_report_text_put_html(out, cell);
				appendStringInfoString(out, "</code>");
			}
			else
			{
				if (column->kind == CELL_SHARE && isfinite(figure))
					appendStringInfo(out, "<span class=\"b\"><i style=\"width:%.1f%%\"></i></span>",
									 100 * Min(Max(figure, 0), 1));
				pgscale_report_text_put_html(out, cell);
			}
			appendStringInfoString(out, "</td>");
		}
		appendStringInfoString(out, "</tr>\n");
	}
	appendStringInfoString(out, "</tbody></table>\n");
	if (table->left_out > 0)
		appendStringInfo(out, "<p class=\"m\">and %d more</p>\n", table->left_out);
}

/* pgscale_internal.report_table(format, titles, kinds, cells); without cells it is nothing. */
Datum
pgscale_report_table(PG_FUNCTION_ARGS)
{
	bool		html = pgscale_report_text_is_html(fcinfo, 0);
	ReportTable table = {0};
	StringInfoData out;

	initStringInfo(&out);
	read_table(fcinfo, html, &table);
	if (table.nrows > 0 && html)
		put_html_table(&out, &table);
	else if (table.nrows > 0)
		put_plain_table(&out, &table);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}

/* pgscale_internal.report_paragraph(format, value, style): a title, the title of a part or of a list, a note, what is missing, or a sentence. */
Datum
pgscale_report_paragraph(PG_FUNCTION_ARGS)
{
	bool		html = pgscale_report_text_is_html(fcinfo, 0);
	const char *style = PG_ARGISNULL(2) ? "" : text_to_cstring(PG_GETARG_TEXT_PP(2));
	bool		is_title = strcmp(style, "title") == 0;
	bool		is_part = strcmp(style, "part") == 0;
	bool		is_list = strcmp(style, "list") == 0;
	StringInfoData out;
	char	   *value;

	initStringInfo(&out);
	if (PG_ARGISNULL(1))
		PG_RETURN_TEXT_P(cstring_to_text(""));
	value = pgscale_report_text_of(PG_GETARG_TEXT_PP(1), 2000, false);
	if (html)
	{
		const char *tag = is_title ? "h1" : is_part ? "h2" : is_list ? "h3" : "p";

		appendStringInfo(&out, "<%s", tag);
		if (strcmp(style, "note") == 0)
			appendStringInfoString(&out, " class=\"m\"");
		else if (strcmp(style, "missing") == 0)
			appendStringInfoString(&out, " class=\"x\"");
		appendStringInfoChar(&out, '>');
		pgscale_report_text_put_html(&out, value);
		appendStringInfo(&out, "</%s>\n", tag);
	}
	else
	{
		int			indent = is_title || is_part ? 0 : MARGIN;
		int			width = 0;

		if (is_part || is_list)
			appendStringInfoChar(&out, '\n');
		for (const char *at = value; *at;)
		{
			int			len = pgscale_report_text_fit(at, PGSCALE_REPORT_WIDTH - indent, true);

			CHECK_FOR_INTERRUPTS();
			put_spaces(&out, indent);
			pgscale_text_put(&out, at, len);
			width = Max(width, pgscale_report_text_width(at, len));
			end_line(&out);
			at += len;
			while (*at == ' ')
				at++;
		}
		if (is_title || is_part)
		{
			for (int i = 0; i < width; i++)
				appendStringInfoChar(&out, is_title ? '=' : '-');
			appendStringInfoChar(&out, '\n');
		}
	}
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
