-- The page of the load, from load_from to load_to, in seconds of the epoch.
SELECT pgscale.report(to_timestamp(:load_from), to_timestamp(:load_to), 'html');
