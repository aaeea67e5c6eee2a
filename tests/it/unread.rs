//! A log that nobody reads holds nothing up [LIM-6, OPS-5].

use crate::support::{Client, ERAS, Gateway, Speaks, TestApp, Upstream};

/// Far more lines than a pipe holds.
const REFUSED: usize = 400;

/// [LIM-6, OPS-5] Whoever starts `serve` gives it a pipe for stderr and does not read it: all are answered, and it ends when it
/// is told to. Whoever reads after all has every line.
#[tokio::test]
async fn a_log_that_nobody_reads_holds_nothing_up() {
    let upstream = Upstream::start(Speaks::Both, false, &["echo"]).await;
    let (tables, names) = TestApp::servers(&[("up", upstream.lines())]);
    for reads in [true, false] {
        let rest = format!(
            "[log]\nformat = \"json\"\n{tables}[mcp_bundles.all]\nservers = [{names}]\n[principals.local]\nmcp_bundles \
             = [\"all\"]\n"
        );
        let mut gateway = Gateway::try_start("127.0.0.1:0", &rest).await.unwrap_or_else(|ended| panic!("{ended:?}"));
        for era in ERAS {
            let client = Client::connect(era, gateway.addr, "/mcp", None).await;
            for _ in 0..REFUSED {
                assert_eq!(client.call_with("up__nothing", "{}").await.code(), -32602);
            }
            assert!(client.call_with("up__echo", "{}").await.is_result());
        }
        if reads {
            for _ in 0..ERAS.len() * REFUSED {
                gateway.says("\"refused\"").await;
            }
        }
        gateway.terminate();
        assert_eq!(if reads { gateway.ended().await } else { gateway.ended_unread().await }, Some(0));
    }
}
