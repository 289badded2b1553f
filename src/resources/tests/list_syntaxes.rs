//! Tests of lists in YAML and in indented JSON. The server converts these lists part by part. The
//! result must have the same bytes as a conversion of the whole list.

use super::*;
use crate::clock;
use aggregated_apiserver::serve;

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

#[tokio::test(start_paused = true)]
async fn lists_in_every_syntax_are_streamed_with_identical_bytes() {
    // Tables contain ages in seconds. With a simulated clock, all answers have the same ages.
    let _simulated = clock::simulated::begin("2026-01-02T03:04:05Z".parse().unwrap());
    let metadata = "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let table = "as=Table;v=v1;g=meta.k8s.io";
    let texts = [
        "plain",
        "two\nlines\n",
        "\n\n",
        "- dash",
        "key: value # comment",
        "'\"\\ \t \u{1}\u{85}\u{2028}é",
        "",
        " ",
        "yes",
        "1e3",
        "~",
        "{a: [b]}",
        &"a long line that goes on ".repeat(20),
        "trailing \n space",
        "&anchor *alias !tag |literal >folded",
    ];
    for number in [0, 1, 15, 400] {
        let mut fixture = Fixture::bounded(8 << 20);
        for n in 0..number {
            fixture.put(101 + n, "n", &format!("o{n:04}"), |object| {
                let text = texts[usize::try_from(n).unwrap() % texts.len()];
                object["status"]["message"] = json!(text);
                object["metadata"]["annotations"] = json!({ text: text, "empty": {}, "none": [] });
                object["status"]["new"] = json!([{ "message": text }, [], [[text]], null]);
            });
        }
        for parameters in ["", table, metadata] {
            for query in ["", "?limit=3"] {
                let path = format!("{ALL}{query}");
                let accept = |kind: &str| format!("application/{kind};{parameters}");
                let ask = async |kind: &str, more: &str| {
                    let accept = format!("{}{more}", accept(kind));
                    let asked = request("GET", &path, &[("accept", &accept)]);
                    let mut body = fixture.send(asked).await.into_body();
                    let (mut bytes, mut frames) = (Vec::new(), 0);
                    while let Some(frame) = body.frame().await {
                        let data = frame.unwrap().into_data().unwrap();
                        assert!(data.len() < 512 << 10);
                        bytes.extend_from_slice(&data);
                        frames += 1;
                    }
                    assert_eq!(frames > 1, number == 400 && query.is_empty(), "{kind}");
                    String::from_utf8(bytes).unwrap()
                };
                let json = ask("json", "").await;
                let yaml = ask("yaml", "").await;
                let pretty = ask("json", ";pretty=1").await;
                let whole = serve::yaml(json.as_bytes());
                assert_eq!(yaml, String::from_utf8(whole).unwrap());
                let whole = serve::indent(json.trim_end().as_bytes());
                assert_eq!(pretty, String::from_utf8(whole).unwrap());
            }
        }
    }
}
