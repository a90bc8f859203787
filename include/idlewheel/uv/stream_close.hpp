// stream_close.hpp - the ways to end a libuv stream, safe to ask for in any order and any number of
// times.
//
//   half_close     all that is queued, then a FIN; the peer may still send. For a peer that is there
//                  and shall read our last words: then wait for its FIN, with a linger limit
//                  (verdict::linger), and close
//   close_stream   at once; a FIN when nothing of the peer's is unread, else the kernel resets. What
//                  is in libuv's queue is lost, what is in the kernel's is still sent
//   reset_stream   at once, with a RST; both queues are dropped. For a peer that is gone, or takes
//                  nothing: a FIN would wait behind its data for the kernel's own patience
//
//   reason to close                        deserves
//   header, body, request, rate_in         a reply (408), half_close, linger; close_stream when it
//                                          never sent a byte
//   handshake, keep_alive, idle,           close_stream
//   read_idle, message_idle, linger,
//   evicted
//   max_age, drain                         half_close, linger
//   write_stall, rate_out, peer_dead       reset_stream
//
// Threads   The loop's.
#pragma once
#include <uv.h>

namespace idlewheel {

// Returns 0, or an error and does nothing: UV_ENOTCONN for a stream that is not connected or was half
// closed before, UV_ECANCELED for one that is closing, UV_ENOMEM. Allocates a request, which libuv's
// callback frees.
int half_close(uv_stream_t* stream) noexcept;

// Calls uv_close(stream, closed). Returns false, and does nothing, when it is closing already.
bool close_stream(uv_stream_t* stream, uv_close_cb closed) noexcept;

// The same with a RST where libuv can: over TCP only, and not while a half_close waits for its queue.
// Else as close_stream.
bool reset_stream(uv_stream_t* stream, uv_close_cb closed) noexcept;

}  // namespace idlewheel
