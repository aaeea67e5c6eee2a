//! `check --schema`: every configuration that this repository shows is valid by it, and a wrong one is not [CFG, OPS-1].

use std::path::Path;

use portcullis::demo;
use serde_json::{Value, json};

use crate::support::Command;

async fn schema() -> Value {
    let printed = Command::new("").run(&["check", "--schema"]).await.code(0);
    assert_eq!(printed.stderr, "");
    serde_json::from_str(&printed.stdout).unwrap()
}

fn value_of(toml: &str) -> Value {
    serde_json::to_value(toml::from_str::<toml::Table>(toml).unwrap()).unwrap()
}

fn text(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// What in a value breaks a schema; the words of JSON Schema that ours uses, and no others.
fn wrong(value: &Value, schema: &Value, root: &Value) -> Vec<String> {
    let mut found = Vec::new();
    // A bound says something of values of its own kind alone.
    let bounded = |word: &str, test: fn(u64, u64) -> bool| {
        let bound = schema[word].as_u64().unwrap();
        let size = match (value, word.ends_with("Items"), word.ends_with("Length")) {
            (Value::Array(list), true, _) => Some(list.len() as u64),
            (Value::String(text), _, true) => Some(text.chars().count() as u64),
            (Value::Number(number), false, false) => number.as_u64(),
            _ => return true,
        };
        size.is_some_and(|size| test(size, bound))
    };
    for (word, wanted) in schema.as_object().unwrap() {
        let holds = match word.as_str() {
            "$defs" | "$schema" | "default" | "description" | "title" => true,
            "$ref" => {
                let target = root.pointer(wanted.as_str().unwrap().strip_prefix('#').unwrap()).unwrap();
                found.extend(wrong(value, target, root));
                true
            }
            "additionalProperties" => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    if schema["properties"].get(key).is_some() {
                        continue;
                    }
                    if *wanted == json!(false) {
                        found.push(format!("no such key: {key}"));
                    } else {
                        found.extend(wrong(value, wanted, root));
                    }
                }
                true
            }
            "anyOf" => wanted.as_array().unwrap().iter().any(|one| wrong(value, one, root).is_empty()),
            "enum" => wanted.as_array().unwrap().contains(value),
            "items" => {
                value.as_array().into_iter().flatten().for_each(|item| found.extend(wrong(item, wanted, root)));
                true
            }
            "maxItems" | "maxLength" | "maximum" => bounded(word, |size, bound| size <= bound),
            "minItems" | "minLength" | "minimum" => bounded(word, |size, bound| size >= bound),
            "properties" => {
                for (key, property) in wanted.as_object().unwrap() {
                    if let Some(value) = value.get(key) {
                        found.extend(wrong(value, property, root));
                    }
                }
                true
            }
            "required" => wanted.as_array().unwrap().iter().all(|key| value.get(key.as_str().unwrap()).is_some()),
            "type" => match wanted.as_str().unwrap() {
                "array" => value.is_array(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_i64() || value.is_u64(),
                "object" => value.is_object(),
                "string" => value.is_string(),
                other => panic!("type {other}"),
            },
            other => panic!("this test does not know '{other}'"),
        };
        if !holds {
            found.push(format!("{word} of {schema}: {value}"));
        }
    }
    found
}

/// The demo's configuration, README's, and every file of `policies/`.
#[tokio::test]
async fn what_this_repository_shows_is_valid() {
    let schema = schema().await;
    let demo = demo::configuration(Path::new("/bin/portcullis"), "http://127.0.0.1:1/mcp");
    assert_eq!(wrong(&value_of(&demo), &schema, &schema), Vec::<String>::new());
    let readme = text("README.md");
    let examples: Vec<_> = readme.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        assert_eq!(wrong(&value_of(example), &schema, &schema), Vec::<String>::new(), "{example}");
    }
    let mut policies = 0;
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("policies")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let policy = value_of(&std::fs::read_to_string(&path).unwrap());
            assert_eq!(wrong(&policy, &schema["$defs"]["policy"], &schema), Vec::<String>::new(), "{path:?}");
            policies += 1;
        }
    }
    assert!(policies > 0);
}

/// What the reader refuses for a key or a type, the schema refuses too, and what the one takes, the other takes.
#[tokio::test]
async fn schema_and_check_agree() {
    let schema = schema().await;
    let command = Command::new("");
    let server = "[[mcp.servers]]\nname = \"s\"\ncommand = \"x\"\n";
    let keys = "[listen]\nauth = \"keys\"\n";
    for (text, good) in [
        (keys.to_owned(), true),
        (format!("{keys}{server}"), true),
        (format!("{keys}http = [\"127.0.0.1:1\", \"[::1]:1\"]\nadmin = \"127.0.0.1:2\"\n"), true),
        (format!("{keys}{server}env = {{ A = \"b\" }}\ntool_timeout_secs = 600\n"), true),
        ("[listen]\nauth = [\"keys\"]\n".to_owned(), true),
        ("[listen]\nauth = []\n".to_owned(), false),
        ("[listen]\nauth = \"key\"\n".to_owned(), false),
        (format!("{keys}htpp = \"127.0.0.1:1\"\n"), false),
        (format!("{keys}http = 7800\n"), false),
        (format!("{keys}http = []\n"), false),
        (format!("{keys}{server}tool_timeout_secs = 601\n"), false),
        (format!("{keys}{server}tool_timeout_secs = \"1\"\n"), false),
        (format!("{keys}{server}env = {{ A = 1 }}\n"), false),
        (format!("{keys}{server}on_down = \"show\"\n"), false),
        (format!("{keys}[[mcp.servers]]\ncommand = \"x\"\n"), false),
        (format!("{keys}[[mcp.servers]]\nname = \"s\"\n"), false),
        (format!("{keys}[principals.p]\napi_keys = [{{ sha256 = \"abc\" }}]\n"), false),
        (format!("{keys}[principals.p]\napi_keys = [{{}}]\n"), false),
        (format!("{keys}[principals]\np = 1\n"), false),
        (format!("{keys}[[policies.p.expect]]\ntool = \"s__a\"\n"), false),
        ("nonsense = 1\n".to_owned(), false),
    ] {
        let found = wrong(&value_of(&text), &schema, &schema);
        assert_eq!(found.is_empty(), good, "the schema: {text}\n{found:?}");
        command.write("portcullis.toml", &text);
        command.run(&["check"]).await.code(if good { 0 } else { 3 });
    }
}

/// The schema says what it is, and each of its keys what it is for.
#[tokio::test]
async fn the_schema_describes_itself() {
    let schema = schema().await;
    assert_eq!(schema["$schema"], json!("https://json-schema.org/draft/2020-12/schema"));
    assert!(schema["description"].is_string());
    for (name, table) in schema["$defs"].as_object().unwrap() {
        for (key, property) in table["properties"].as_object().unwrap() {
            assert!(property["description"].is_string() || property["$ref"].is_string(), "{name}.{key}");
        }
    }
}
