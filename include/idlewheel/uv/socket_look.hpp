// socket_look.hpp - the look into the kernel before a connection is closed.
//
// What   Asks a socket how much is unread, how much the peer has not taken, and when data last moved.
// Not    For every read: two or three system calls, meant for the moment when a limit has run out.
#pragma once
#include "idlewheel/wheel/socket_view.hpp"

namespace idlewheel {

// The instants are loop_wheel's, uv_hrtime(), rounded towards now by what the kernel's stamps
// resolve (one jiffy), so that nothing dated by them is early. A field stays empty where the socket
// or the platform has no answer: a pipe has no acknowledgements, a closing handle has no
// descriptor. Thread: the loop's.
//
//   unread         FIONREAD
//   unsent         libuv's write queue plus SIOCOUTQ. On a pipe that counts the kernel's memory, which
//                  is more than the bytes: a reader who takes many small writes slowly looks still
//   last_arrival   tcpi_last_data_recv, TCP only
//   last_delivery  tcpi_last_ack_recv, TCP only
//   acknowledged   tcpi_bytes_acked, TCP only, since Linux 4.1
socket_look look_at_socket(const socket_view& socket) noexcept;

}  // namespace idlewheel
