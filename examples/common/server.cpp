#include "server.hpp"

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <utility>
#include <vector>

namespace example {
namespace {

std::atomic<uv_async_t*> wake_on_signal = nullptr;
static_assert(std::atomic<uv_async_t*>::is_always_lock_free);

// Not uv_signal_t: the loop may be waiting for a reader of our output. The second signal has its
// default effect and ends the process, whatever the loop does.
void on_signal(int) {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  if (uv_async_t* const wake = wake_on_signal) uv_async_send(wake);
}

}  // namespace

std::string to_string(const sockaddr_storage& address) {
  char host[64] = "?";
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    uv_ip6_name(&v6, host, sizeof host);
    return fmt::format("[{}]:{}", host, ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
  uv_ip4_name(&v4, host, sizeof host);
  return fmt::format("{}:{}", host, ntohs(v4.sin_port));
}

server::server(uv_loop_t* loop, std::string program, const server_options& wanted, factory make)
    : loop_{loop},
      options_{wanted},
      make_{std::move(make)},
      wheel_{loop, {.tick = wanted.tick, .slots = wanted.slots, .refresh = wanted.refresh}},
      journal_{std::move(program), wanted.log, wanted.quiet},
      limit_{wanted.max_connections} {
  uv_tcp_init(loop_, &listener_);
  uv_async_init(loop_, &signalled_,
                [](uv_async_t* handle) { static_cast<server*>(handle->data)->shut_down(); });
  signalled_.data = this;
  wake_on_signal = &signalled_;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  uv_prepare_init(loop_, &before_poll_);
  uv_timer_init(loop_, &every_second_);
  listener_.data = before_poll_.data = every_second_.data = this;
}

int server::listen() {
  const auto* address = reinterpret_cast<const sockaddr*>(&options_.address);
  if (const int status = uv_tcp_bind(&listener_, address, 0); status < 0) return status;
  const int status = uv_listen(reinterpret_cast<uv_stream_t*>(&listener_), 1024,
                               [](uv_stream_t* stream, int result) {
                                 static_cast<server*>(stream->data)->on_connection(result);
                               });
  if (status < 0) return status;

  uv_prepare_start(&before_poll_, [](uv_prepare_t* handle) {
    static_cast<server*>(handle->data)->journal_.flush();
  });
  if (journal_.live())
    uv_timer_start(
        &every_second_,
        [](uv_timer_t* handle) { static_cast<server*>(handle->data)->show_status(); }, 1000, 1000);

  sockaddr_storage bound{};
  int length = sizeof bound;
  uv_tcp_getsockname(&listener_, reinterpret_cast<sockaddr*>(&bound), &length);
  journal_.listening(to_string(bound));
  return 0;
}

void server::on_connection(int status) {
  if (status < 0) return journal_.problem(fmt::format("cannot accept: {}", uv_strerror(status)));
  // Not accepting is enough: libuv then stops listening until we do, and the backlog fills.
  if (full()) {
    waiting_ = true;
    if (limit_told_ms_ == 0 || uv_now(loop_) - limit_told_ms_ >= 1000) {
      limit_told_ms_ = uv_now(loop_);
      journal_.problem(fmt::format("{} connections are open, the limit; more wait", limit_));
    }
    return;
  }
  accept_one();
}

void server::accept_one() {
  connection* const accepted = make_(*this, next_id_++);
  if (const int status = uv_accept(reinterpret_cast<uv_stream_t*>(&listener_),
                                   reinterpret_cast<uv_stream_t*>(accepted->tcp()));
      status < 0) {
    journal_.problem(fmt::format("cannot accept: {}", uv_strerror(status)));
    uv_close(as_handle(*accepted->tcp()),
             [](uv_handle_t* handle) { delete static_cast<connection*>(handle->data); });
    return;
  }
  ++totals_.accepted;
  ++totals_.open;
  connections_.insert(accepted);
  accepted->start();
}

void server::on_opened(const connection& opened) { journal_.opened(opened.id(), opened.peer()); }

void server::on_closing(connection& ending, const closing& how) {
  connections_.erase(&ending);
  --totals_.open;
  ++totals_.closed[how.reason];
  if (how.late) totals_.latest_close = std::max(totals_.latest_close, *how.late);
  journal_.closed(ending.id(), ending.peer(), how);
}

void server::on_closed() {
  if (!waiting_ || full() || stopping_) return;
  waiting_ = false;
  accept_one();
}

uv_buf_t server::read_buffer() {
  return uv_buf_init(buffer_.data(), static_cast<unsigned>(buffer_.size()));
}

void server::show_status() {
  journal_.status(totals_, static_cast<double>(totals_.refreshes - refreshes_shown_));
  refreshes_shown_ = totals_.refreshes;
}

void server::print_summary() {
  totals_.relinks = wheel_.stats().relinked;
  journal_.summary(totals_);
}

void server::shut_down() {
  if (stopping_) return;
  stopping_ = true;
  wake_on_signal = nullptr;
  for (uv_handle_t* handle :
       {as_handle(signalled_), as_handle(listener_), as_handle(every_second_)})
    uv_close(handle, nullptr);
  for (connection* open : std::vector<connection*>(connections_.begin(), connections_.end()))
    open->close("shutdown");
  wheel_.close();
  uv_close(as_handle(before_poll_), nullptr);
}

int serve(const std::string& program, const server_options& wanted, const server::factory& make) {
  std::signal(SIGPIPE, SIG_IGN);  // a peer that has gone is an error of its connection
  uv_loop_t loop;
  uv_loop_init(&loop);
  int exit_status = 0;
  try {
    server all{&loop, program, wanted, make};
    if (const int status = all.listen(); status < 0) {
      fmt::print(stderr, "{}: cannot listen on {}: {}\n", program, wanted.listen,
                 uv_strerror(status));
      exit_status = 1;
      all.shut_down();
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    if (exit_status == 0) all.print_summary();
  } catch (const std::exception& wrong) {
    fmt::print(stderr, "{}: {}\n", program, wrong.what());
    return 1;
  }
  uv_run(&loop, UV_RUN_DEFAULT);
  uv_loop_close(&loop);
  return exit_status;
}

}  // namespace example
