-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pgscale" to load this file. \quit

CREATE SCHEMA pgscale;
COMMENT ON SCHEMA pgscale IS 'objects of the extension pgscale';
GRANT USAGE ON SCHEMA pgscale TO pg_monitor;
