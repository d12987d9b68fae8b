"""A load of much WAL and few changed pages: updates of wide rows."""

TABLE = """
    CREATE TABLE wide (id int PRIMARY KEY, filler text) WITH (fillfactor = 40);
    ALTER TABLE wide ALTER filler SET STORAGE plain;
    INSERT INTO wide SELECT id, repeat('x', 3200) FROM generate_series(1, 2000) AS id
"""
# for pgbench -f
UPDATE = """\\set id random(1, 2000)
UPDATE wide SET filler = repeat(md5(random()::text), 100) WHERE id = :id;
"""
