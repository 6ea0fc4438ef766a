// ksqldb-client against the SQL server: `node ksqldb.js HOST PORT`. HTTP/2 without TLS. It prints what it was answered, as JSON.
"use strict";

const KsqldbClient = require("ksqldb-client");

async function main() {
  const [, , host, port] = process.argv;
  const client = new KsqldbClient({ host: `http://${host}`, port: Number(port) });
  const answers = {};
  await client.connect();
  const variables = { sessionVariables: { TOPIC: "trees" } };
  const columns = "(id INT KEY, name STRING) WITH (KAFKA_TOPIC='${TOPIC}', VALUE_FORMAT='JSON', PARTITIONS=1)";
  answers.created = (await client.executeStatement(`CREATE STREAM trees ${columns};`, variables)).status;
  answers.streams = (await client.listStreams()).map((stream) => stream.name);
  answers.fields = (await client.describeSource("trees")).fields.map((field) => field.name);
  answers.inserted = (await client.insertInto("trees", { ID: 1, NAME: "ash" })).status;
  await client.insertInto("trees", { ID: 2, NAME: "birch" });
  answers.pushed = [];
  let queryId;
  const pushed = await client.streamQuery(
    "SELECT id, name FROM trees EMIT CHANGES LIMIT 2;",
    ({ metadata, rows }) => {
      if (metadata) queryId = metadata.queryId;
      if (rows) answers.pushed.push(...rows);
    },
    { properties: { "auto.offset.reset": "earliest" } },
  );
  answers.pushStatus = pushed.status;
  answers.hasQueryId = typeof queryId === "string" && queryId.length > 0;
  const pulled = await client.query("SELECT name FROM trees WHERE id = 2;");
  answers.pulled = pulled.data.rows;
  const refused = await client.query("SELECT * FROM nothing;");
  answers.refused = { status: refused.status, code: refused.error && refused.error.error_code };
  await client.disconnect();
  console.log(JSON.stringify(answers));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
