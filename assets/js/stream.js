/**
 * The stream that a run comes by, and what becomes of it when it is cut.
 *
 * Left alone, Gradio would answer a cut with a notice of its own, take no run any more, and reload the page as soon as
 * the server is back: the rounds on the board would go. Here a cut is to Gradio an error of the server's, which ends the
 * run and leaves the page as it is; the page itself is told by an event.
 */

export const CUT = 'sv-cut';
const JOIN = '/gradio_api/queue/join';
const STREAM = '/gradio_api/queue/data';
const FAULT = 'data: {"msg":"unexpected_error"'; // how the server begins to say that it lost the run
const END = 'data: {"msg":"close_stream"'; // how a stream ends that was not cut
const CLOSING = `${FAULT},"message":"cut","success":false}\n\n${END}}\n\n`;

const ask = window.fetch.bind(window);
let unheard = false; // the last run did not reach the server, so its stream is not to be had

window.fetch = (asked, options) => {
  const { pathname } = new URL(asked instanceof Request ? asked.url : asked, document.baseURI);
  if (pathname.endsWith(JOIN)) return join(asked, options);
  if (pathname.endsWith(STREAM)) return stream(asked, options);
  return ask(asked, options);
};

/** A run that does not reach the server is one whose stream is cut at once. A server that refuses has words of its own. */
async function join(asked, options) {
  unheard = false;
  try {
    const answer = await ask(asked, options);
    // What stands between may answer for a server that is away.
    if (answer.headers.get('content-type')?.includes('json')) return answer;
    throw new Error(`status ${answer.status}`);
  } catch (error) {
    console.info('run not sent:', error.message);
    unheard = true;
    return new Response('{"event_id":"unheard"}', { headers: { 'Content-Type': 'application/json' } });
  }
}

async function stream(asked, options) {
  try {
    if (unheard) throw new Error('the run was not sent');
    const answer = await ask(asked, options);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return new Response(whole(answer.body.getReader()), { headers: answer.headers });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    console.info('stream:', error.message);
    return new Response(closing(), { headers: { 'Content-Type': 'text/event-stream' } });
  }
}

/** The messages of a stream, each in one piece, and a closing where the server has sent none. */
function whole(reader) {
  const decoder = new TextDecoder();
  const encoder = new TextEncoder();
  let rest = '';
  let ended = false;
  return new ReadableStream({
    async pull(out) {
      try {
        const { done, value } = await reader.read();
        if (!done) {
          rest += decoder.decode(value, { stream: true });
          const messages = rest.split('\n\n');
          rest = messages.pop();
          if (messages.some((message) => message.startsWith(FAULT))) throw new Error('the server lost the run');
          ended ||= messages.some((message) => message.startsWith(END));
          out.enqueue(encoder.encode(messages.map((message) => `${message}\n\n`).join('')));
          return;
        }
        if (!ended) throw new Error('it ended early');
      } catch (error) {
        if (error.name === 'AbortError') {
          out.error(error);
          return;
        }
        console.info('stream:', error.message);
        if (!ended) out.enqueue(encoder.encode(closing()));
      }
      out.close();
    },
    cancel: (why) => reader.cancel(why),
  });
}

function closing() {
  document.dispatchEvent(new Event(CUT));
  return CLOSING;
}
