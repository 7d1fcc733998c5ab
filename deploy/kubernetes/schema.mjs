// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// usage: node schema.mjs MODULES < OBJECTS.yaml
//
// Checks objects against the schema of Kubernetes: types and required fields by
// the npm package kubernetes-models, unknown fields by @kubernetes/client-node.
// MODULES is the folder in which npm has installed them, and js-yaml. Kinds that
// neither knows are left out.
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';

const modules = path.resolve(process.argv[2]);
const require = createRequire(`${modules}/`);
const yaml = require('js-yaml');
// The package's own entry does not load with Node 20.
const client = await import(
    `${modules}/@kubernetes/client-node/dist/gen/models/all.js`);

// Returns the fields of `value`, of the type that the client calls `type`, which
// it does not know.
function unknownFields(value, type, place) {
  if (value === null || typeof value !== 'object') return [];
  const list = type.match(/^Array<(.*)>$/);
  if (list) {
    return value.flatMap((v, i) => unknownFields(v, list[1], `${place}[${i}]`));
  }
  const map = type.match(/^\{ \[key: string\]: (.*); \}$/);
  if (map) {
    return Object.entries(value).flatMap(
        ([key, v]) => unknownFields(v, map[1], `${place}.${key}`));
  }
  if (!client[type]) return [];
  const fields = new Map(client[type].getAttributeTypeMap().map(
      (field) => [field.baseName, field.type]));
  return Object.entries(value).flatMap(
      ([key, v]) => fields.has(key) ?
          unknownFields(v, fields.get(key), `${place}.${key}`) :
          [`${place}.${key}: unknown field of ${type}`]);
}

const problems = [];
for (const object of yaml.loadAll(fs.readFileSync(0, 'utf8'))) {
  const {apiVersion, kind} = object;
  const version = apiVersion.split('/').pop();
  const type = version.replace(/^v/, 'V') + kind;
  if (!client[type]) continue;
  problems.push(...unknownFields(object, type, kind));
  const model = require(`kubernetes-models/${apiVersion}/${kind}`)[kind];
  try {
    new model(object).validate();
  } catch (error) {
    problems.push(`${kind}: ${error.message}`);
  }
}
if (problems.length > 0) {
  console.error(problems.join('\n'));
  process.exit(1);
}
