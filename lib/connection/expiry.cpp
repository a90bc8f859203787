#include "idlewheel/connection/expiry.hpp"

namespace idlewheel {

const char* name_of(expiry_reason reason) noexcept {
  switch (reason) {
    case expiry_reason::handshake:
      return "handshake";
    case expiry_reason::header:
      return "header";
    case expiry_reason::body:
      return "body";
    case expiry_reason::request:
      return "request";
    case expiry_reason::keep_alive:
      return "keep_alive";
    case expiry_reason::idle:
      return "idle";
    case expiry_reason::read_idle:
      return "read_idle";
    case expiry_reason::message_idle:
      return "message_idle";
    case expiry_reason::write_stall:
      return "write_stall";
    case expiry_reason::rate_in:
      return "rate_in";
    case expiry_reason::rate_out:
      return "rate_out";
    case expiry_reason::peer_dead:
      return "peer_dead";
    case expiry_reason::max_age:
      return "max_age";
    case expiry_reason::linger:
      return "linger";
    case expiry_reason::evicted:
      return "evicted";
    case expiry_reason::drain:
      return "drain";
  }
  return "?";
}

}  // namespace idlewheel
