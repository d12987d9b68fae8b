-- Numbers as views and functions show them to people.

CREATE FUNCTION pgscale_internal.three_digits(value double precision)
RETURNS double precision
AS 'MODULE_PATHNAME', 'pgscale_three_digits_of'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale_internal.three_digits(double precision) IS
'a measured number with three significant digits, or a whole number if that has more';
