// Change the roles of an identity. The page is loaded again, because its rights follow from the roles.

import { callApi } from "./api.js";
import { find, given, handle, showMessage } from "./dom.js";

const { name } = given();

async function save() {
  const roles = [...document.querySelectorAll("#roles input:checked")].map((box) => box.value);
  try {
    await callApi("PUT", `/api/identities/${encodeURIComponent(name)}/roles`, { roles });
    location.reload();
  } catch (error) {
    showMessage(error.message, true);
  }
}

handle(find("#roles"), save);
