// A plugin of Headlamp with a page that lists and watches operations: docs/integrations.md.
import { K8s, registerRoute, registerSidebarEntry } from '@kinvolk/headlamp-plugin/lib';
import { ResourceListView } from '@kinvolk/headlamp-plugin/lib/CommonComponents';

const Operations = K8s.crd.makeCustomResourceClass({
  apiInfo: [{ group: 'live.ifo.kubevirt.io', version: 'v1alpha1' }],
  kind: 'InFlightOperation', pluralName: 'inflightoperations', singularName: 'inflightoperation', isNamespaced: true,
});
const column = (label, getValue) => ({ label, getValue: ({ jsonData: it }) => getValue(it) });

registerSidebarEntry({ parent: null, name: 'operations', label: 'Operations', url: '/operations' });
registerRoute({
  path: '/operations', name: 'operations', sidebar: 'operations',
  component: () => (
    <ResourceListView
      title="Operations" resourceClass={Operations} enableRowActions={false} enableRowSelection={false}
      columns={[
        'namespace',
        column('Subject', (it) => `${it.spec.subject.kind}/${it.spec.subject.name}`),
        column('Operation', (it) => it.spec.operation),
        column('State', (it) => it.status.state),
        column('Message', (it) => it.status.message),
        'age',
      ]}
    />
  ),
});
