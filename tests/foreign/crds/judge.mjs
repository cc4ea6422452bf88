// Reads manifests of custom resources, a JSON list, and prints the faults of each, a JSON list of lists of texts.
// The schema of the definition finds wrong types and missing keys; TypeScript finds keys that there are not.
import { readFileSync, unlinkSync, writeFileSync } from "node:fs";
import ts from "typescript";
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject";
import { PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";

const KINDS = { ScaledObject, PodMonitor };
const FROM = {
  ScaledObject: "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject",
  PodMonitor: "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor",
};
const OPTIONS = {
  noEmit: true,
  strict: true,
  skipLibCheck: true,
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  target: ts.ScriptTarget.ES2022,
  types: [],
};

function faultsOfSchema(manifest) {
  try {
    new KINDS[manifest.kind](manifest).validate();
    return [];
  } catch (error) {
    return [error.message];
  }
}

function typed(manifest, number) {
  const { kind } = manifest;
  const file = `manifest-${process.pid}-${number}.ts`;
  writeFileSync(
    file,
    `import type { I${kind} } from "${FROM[kind]}";\nexport const one: I${kind} = ${JSON.stringify(manifest)};\n`,
  );
  return file;
}

const manifests = JSON.parse(readFileSync(0, "utf-8"));
const files = manifests.map(typed);
const program = ts.createProgram(files, OPTIONS);
const faults = manifests.map((manifest, number) => [
  ...faultsOfSchema(manifest),
  ...ts
    .getPreEmitDiagnostics(program, program.getSourceFile(files[number]))
    .map((one) => ts.flattenDiagnosticMessageText(one.messageText, " ")),
]);
files.forEach((file) => unlinkSync(file));
console.log(JSON.stringify(faults));
