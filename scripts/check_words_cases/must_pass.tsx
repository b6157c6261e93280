/** A page that lists approvals. What it shows is decided by the server. */
export interface ApprovalList {
  owner: string;
}

/** Returns the label of an approval. */
export function approvalLabel({ owner }: ApprovalList): string {
  const template = `function told() { ${owner} }`; // What follows is text.
  const pattern = /function hear|"const said = () => 1"/;
  return pattern.test(template) ? "const said = () => 1" : 'interface Found';
}

export function Page(list: ApprovalList) {
  return <p title="whose told">Approvals that nobody told you about: {approvalLabel(list)}</p>;
}
