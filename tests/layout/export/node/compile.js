// Compile a .ksy file to Python: node compile.js FILE FOLDER
const fs = require("fs");
const path = require("path");
const compiler = require("kaitai-struct-compiler");
const yaml = require("yaml");

const [file, folder] = process.argv.slice(2);
const specification = yaml.parse(fs.readFileSync(file, "utf8"), { version: "1.1" });
compiler
  .compile("python", specification, null, false)
  .then((files) => {
    for (const [name, text] of Object.entries(files)) {
      fs.writeFileSync(path.join(folder, name), text);
    }
  })
  .catch((error) => {
    console.error(String(error));
    process.exit(1);
  });
