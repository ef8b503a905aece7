use rath::prelude::*;

struct Desk {
    writer: Agent,
}

impl Workflow for Desk {
    async fn forward(&self, session: Session) -> Result<Session> {
        self.writer.run(session).await
    }
}

fn main() {}
