// The module `operations` of a dynamic plugin of the OpenShift console: docs/integrations.md.
export const isActivity = (it) => it.status.phase === 'Active' && it.status.state !== 'Held';
export const getTimestamp = (it) => new Date(it.metadata.creationTimestamp);
export const Operation = ({ resource: it }) => (
  <span>{it.spec.subject.kind} {it.spec.subject.name}: {it.spec.operation}, {it.status.state}</span>
);
