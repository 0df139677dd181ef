-- A store of version 3, as `.dump` of sqlite3 writes it.
PRAGMA application_id = 1952607844;
PRAGMA user_version = 3;
BEGIN TRANSACTION;
CREATE TABLE document (
        name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
INSERT INTO document VALUES('counters','{"revision":5,"next_id":3,"sum":{"content":17550134763876029020,"digest":[77,23,23,88,185,69,85,174,255,58,179,89,179,43,35,9,209,96,240,158,105,111,1,40,188,53,82,78,142,28,180,97]}}',8510965813677289444);
INSERT INTO document VALUES('hosts','{"host-3":"drained"}',-4178315706877577341);
INSERT INTO document VALUES('topology','{"revision":1,"policy":"silo","spec":{"frame":"1.538KB","group":[{"name":"left","uplink":{"rate":"40Gbit/s","links":1,"spread":"flow","buffer":"500KB"}}],"host":[{"name":"host","group":"left","count":3,"slots":8,"uplink":{"rate":"10Gbit/s","links":1,"spread":"flow","buffer":"300KB","up_buffer":"62.5KB"}}]}}',2091808278885330220);
CREATE TABLE tenant (
        id INTEGER PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL
    ) STRICT;
INSERT INTO tenant VALUES(1,'{"id":1,"owner":"acme","name":"web","request":{"vms":5,"guarantee":{"bandwidth":"200Mbit/s","burst":"3KB","delay":"2ms","burst_rate":"1Gbit/s"},"cpu":0,"memory":"0B"},"runs":[{"first":0,"count":5,"host":"host-1"}],"change":1}',8905704038329445799);
INSERT INTO tenant VALUES(2,'{"id":2,"owner":"globex","name":"batch","request":{"vms":2,"cpu":0,"memory":"0B"},"runs":[{"first":0,"count":2,"host":"host-1"}],"change":2}',-4019876845404990759);
CREATE TABLE key (
        owner TEXT, name TEXT, value TEXT NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (owner, name)
    ) STRICT, WITHOUT ROWID;
INSERT INTO "key" VALUES('','4711','{"fingerprint":[82,214,250,14,113,183,151,222,123,31,183,13,36,166,170,72,139,27,52,106,130,135,115,53,252,82,17,233,196,102,160,183],"at":"1795407733815745.145us","reply":{"tenant":{"id":2,"owner":"globex","name":"batch","request":{"vms":2,"cpu":0,"memory":"0B"},"runs":[{"first":0,"count":2,"host":"host-1"}],"change":2}}}',-3695929074765730515);
COMMIT;
