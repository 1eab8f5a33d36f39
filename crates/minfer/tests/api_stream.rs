//! Answers as a `futures_core::Stream`, polled by hand.
#![cfg(feature = "stream")]

#[path = "common/chat_model.rs"]
mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use common::{ENDLESS, X, builder, long_builder};
use futures_core::Stream;
use minfer::{Chat, Chunk, ChunkStream, Error, ErrorKind, Model};

/// Wakes a thread and counts.
struct Counting {
    thread: Thread,
    wakes: AtomicUsize,
}

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

fn counting() -> (Arc<Counting>, Waker) {
    let counting = Arc::new(Counting { thread: thread::current(), wakes: AtomicUsize::new(0) });
    (Arc::clone(&counting), Waker::from(counting))
}

/// Chunks to the end; how often the stream was pending and how often it woke.
fn drive(mut stream: impl Stream<Item = Result<Chunk, Error>> + Unpin) -> (Vec<Chunk>, usize, usize) {
    let (counting, waker) = counting();
    let (mut chunks, mut pending) = (Vec::new(), 0);
    loop {
        match Pin::new(&mut stream).poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(chunk)) => chunks.push(chunk.expect("a chunk")),
            Poll::Ready(None) => return (chunks, pending, counting.wakes.load(Ordering::SeqCst)),
            Poll::Pending => {
                pending += 1;
                while counting.wakes.load(Ordering::SeqCst) < pending {
                    thread::park_timeout(Duration::from_secs(20));
                }
            }
        }
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let (_, waker) = counting();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn long(model: &Model) -> Chat {
    model.chat().user("hello").max_tokens(ENDLESS).ignore_eos(true).seed(2)
}

#[test]
fn it_gives_the_blocking_answer_with_one_wake_for_each_wait() {
    let model = builder().load().unwrap();
    let chat = long(&model).max_tokens(40);
    let expected = chat.answer().unwrap();
    let (chunks, pending, wakes) = drive(chat.stream_async().unwrap());
    assert_eq!(chunks.iter().map(|chunk| chunk.text.as_str()).collect::<String>(), expected.text);
    let finish = chunks.last().unwrap().finish.as_ref().unwrap();
    assert_eq!(finish.usage.completion, expected.finish.usage.completion);
    assert_eq!(pending, wakes);
    assert_eq!(block_on(chat.stream_async().unwrap().answer()).unwrap().text, expected.text);
    let completion = model.complete("hello").seed(1).max_tokens(9);
    let text = block_on(completion.stream_async().unwrap().answer()).unwrap().text;
    assert_eq!(text, completion.text().unwrap());
}

#[test]
fn the_waker_of_the_last_poll_is_woken() {
    let model = long_builder().load().unwrap();
    let mut stream = long(&model).stream_async().unwrap();
    let ((old, old_waker), (new, new_waker)) = (counting(), counting());
    loop {
        let polled = |stream: &mut ChunkStream, waker| {
            Pin::new(stream).poll_next(&mut Context::from_waker(waker)).is_pending()
        };
        let before = old.wakes.load(Ordering::SeqCst);
        // Both polls have to find nothing, or nobody waits.
        if polled(&mut stream, &old_waker)
            && polled(&mut stream, &new_waker)
            && old.wakes.load(Ordering::SeqCst) == before
        {
            break;
        }
    }
    while new.wakes.load(Ordering::SeqCst) == 0 {
        thread::park_timeout(Duration::from_secs(20));
    }
}

#[test]
fn a_dropped_stream_frees_its_blocks() {
    let model = long_builder().load().unwrap();
    let stream = long(&model).stream_async().unwrap();
    while model.stats().kv.blocks_live == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    drop(stream);
    let start = Instant::now();
    while model.stats().kv.blocks_live + model.stats().running > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", model.stats());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(model.stats().cancelled, 1);
}

#[test]
fn a_cancelled_stream_says_so() {
    let model = builder().load().unwrap();
    let stream = long(&model).stream_async().unwrap();
    stream.cancel_handle().cancel();
    assert_eq!(block_on(stream.answer()).unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn a_conversation_can_be_awaited() {
    let model = builder().load().unwrap();
    let mut talk = model.conversation().logit_bias(X, 1e6).max_tokens(8);
    let first = block_on(talk.stream_async("one").unwrap().answer()).unwrap();
    assert_eq!(first.text, "xxxxxxxx");
    let (chunks, ..) = drive(talk.stream_async("two").unwrap());
    let usage = chunks.last().unwrap().finish.as_ref().unwrap().usage;
    assert_eq!(usage.cached, first.finish.usage.prompt + 7);
    drop(talk.stream_async("three").unwrap());
    assert_eq!(talk.messages().len(), 4, "nothing was read, so nothing was said");
}

/// Drops the stream, and with it the model, on the thread that wakes.
struct Dropping {
    stream: Mutex<Option<ChunkStream>>,
    dropped: Mutex<Sender<bool>>,
}

impl Wake for Dropping {
    fn wake(self: Arc<Self>) {
        if let Some(stream) = self.stream.lock().unwrap().take() {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(stream))).is_ok();
            self.dropped.lock().unwrap().send(dropped).unwrap();
        }
    }
}

#[test]
fn the_last_handle_may_be_dropped_by_the_engines_own_thread() {
    let stream = {
        let model = builder().load().unwrap();
        long(&model).stream_async().unwrap()
    };
    let (sender, receiver) = channel();
    let dropping = Arc::new(Dropping { stream: Mutex::new(Some(stream)), dropped: Mutex::new(sender) });
    let waker = Waker::from(Arc::clone(&dropping));
    loop {
        let mut stream = dropping.stream.lock().unwrap();
        let Some(stream) = stream.as_mut() else { break };
        if Pin::new(stream).poll_next(&mut Context::from_waker(&waker)).is_pending() {
            break;
        }
    }
    assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(true));
}
