// Reads {schema, values} from standard input; writes the verdict on each value as JSON.
import { readFileSync } from "node:fs";
import Ajv from "ajv/dist/2020.js";

const { schema, values } = JSON.parse(readFileSync(0, "utf8"));
const validate = new Ajv({ strict: true, allowUnionTypes: true }).compile(schema);
console.log(JSON.stringify(values.map((value) => validate(value))));
