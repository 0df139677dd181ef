-- A store of version 6, as `.dump` of sqlite3 writes it.
PRAGMA application_id = 1952607844;
PRAGMA user_version = 6;
BEGIN TRANSACTION;
CREATE TABLE audit (
        id INTEGER PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL
    ) STRICT;
INSERT INTO "audit" VALUES(1,'{"previous":"","entries":[{"number":1,"at_ms":1796000000000,"caller":{"token":"service","role":"service"},"command":"create","owners":["acme"],"what":"acme/web","after":"id 1: 5 machines on host-1","outcome":"done","digest":"75eff1e97caf910c7aecb250a543d493005d0c05e3c352b529f42e48f51563f9"}]}',3664192753911185470);
INSERT INTO "audit" VALUES(2,'{"previous":"75eff1e97caf910c7aecb250a543d493005d0c05e3c352b529f42e48f51563f9","entries":[{"number":2,"at_ms":1796000000000,"caller":{"token":"service","role":"service"},"command":"create","owners":["globex"],"what":"globex/batch","after":"id 2: 2 machines on host-1","outcome":"done","digest":"be1cf9c4b62eaa58296fac8c9fd6a0deaa6d5cfeffdf0e31e5b3947c3e9777b6"}]}',8073268937277849801);
INSERT INTO "audit" VALUES(3,'{"previous":"be1cf9c4b62eaa58296fac8c9fd6a0deaa6d5cfeffdf0e31e5b3947c3e9777b6","entries":[{"number":3,"at_ms":1796000000000,"caller":{"token":"service","role":"service"},"command":"hosts","what":"host-3 to drained","before":"open","after":"1 hosts drained, 0 tenants concerned","outcome":"done","digest":"6b91ffde50fdbe8afe01e2fb553389dd6fb67a6b73a816e7de39ef7c316183ae"}]}',-5523386263842688410);
INSERT INTO "audit" VALUES(4,'{"previous":"6b91ffde50fdbe8afe01e2fb553389dd6fb67a6b73a816e7de39ef7c316183ae","entries":[{"number":4,"at_ms":1796000000000,"caller":{"token":"service","role":"service"},"command":"create","owners":["acme"],"what":"acme/web","after":"acme has a tenant \"web\" already, with the id 1","outcome":"refused","digest":"ecdc1350e7f9cf73bc5a0490c38bd9a7693d42864c0ee9f3afbcfb2f7aaa7225"}]}',7225960313908177890);
CREATE TABLE document (
        name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
INSERT INTO "document" VALUES('counters','{"revision":6,"next_id":3,"sum":{"content":18043100458700241173,"digest":[196,136,63,13,78,186,110,142,83,251,91,70,133,165,23,10,184,200,140,140,69,114,123,105,212,248,173,201,51,180,24,132]}}',4954530330481367048);
INSERT INTO "document" VALUES('hosts','{"host-3":"drained"}',-4178315706877577341);
INSERT INTO "document" VALUES('token/ci','{"name":"ci","role":"tenant","owner":"acme","sha256":"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a","expires":1796000600,"issued":1796000000,"issued_by":{"token":"ops","role":"operator","request":"9f2c11d04be7-42"}}',-1063473705671372067);
INSERT INTO "document" VALUES('topology','{"revision":1,"policy":"silo","spec":{"frame":"1.538KB","group":[{"name":"left","uplink":{"rate":"40Gbit/s","links":1,"spread":"flow","buffer":"500KB"}},{"name":"right","uplink":{"rate":"40Gbit/s","links":1,"spread":"flow","buffer":"500KB"}}],"host":[{"name":"host","group":"left","count":3,"slots":8,"uplink":{"rate":"10Gbit/s","links":1,"spread":"flow","buffer":"300KB","up_buffer":"62.5KB"}},{"name":"other","group":"right","count":3,"slots":6,"uplink":{"rate":"10Gbit/s","links":1,"spread":"flow","buffer":"300KB","up_buffer":"62.5KB"}}]}}',-6656696938569141738);
CREATE TABLE key (
        owner TEXT, name TEXT, value TEXT NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (owner, name)
    ) STRICT, WITHOUT ROWID;
INSERT INTO "key" VALUES('','4711','{"fingerprint":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"at":"1796000000s","reply":{"tenant":{"id":2,"owner":"globex","name":"batch","request":{"vms":2,"guarantee":{"bandwidth":"200Mbit/s","burst":"3KB","delay":"2ms","burst_rate":"1Gbit/s","bursts":1},"cpu":0,"memory":"0B"},"runs":[{"first":0,"count":2,"host":"host-1"}],"change":2}}}',6464709434099455038);
CREATE TABLE section (
        tenant INTEGER, number INTEGER, value TEXT NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (tenant, number)
    ) STRICT, WITHOUT ROWID;
INSERT INTO "section" VALUES(1,0,'{"of":16691807366336938175,"change":1,"vms":5,"runs":[{"first":0,"count":4,"host":"host-1"},{"first":4,"count":1,"host":"host-2"}]}',-7997841575337070779);
CREATE TABLE tenant (
        id INTEGER PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL
    ) STRICT;
INSERT INTO "tenant" VALUES(1,'{"id":1,"owner":"acme","name":"web","request":{"vms":5,"guarantee":{"bandwidth":"200Mbit/s","burst":"3KB","delay":"2ms","burst_rate":"1Gbit/s","bursts":1},"cpu":0,"memory":"0B"},"runs":[{"first":0,"count":5,"host":"host-1"}],"change":1}',-1754936707372613441);
INSERT INTO "tenant" VALUES(2,'{"id":2,"owner":"globex","name":"batch","request":{"vms":2,"guarantee":{"bandwidth":"200Mbit/s","burst":"3KB","delay":"2ms","burst_rate":"1Gbit/s","bursts":1},"cpu":0,"memory":"0B"},"runs":[{"first":0,"count":2,"host":"host-1"}],"change":2}',1342875843464485134);
COMMIT;
