#include "serve.hpp"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <csignal>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace example {
namespace {

std::array<std::atomic<uv_async_t*>, most_loops> wake_on_signal{};
static_assert(std::atomic<uv_async_t*>::is_always_lock_free);
volatile std::sig_atomic_t caught = 0;

// Not uv_signal_t: a loop may be waiting for a reader of our output. The second signal has its default
// effect and ends the process, whatever the loops do.
void on_signal(int number) {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  caught = number;
  for (auto& wake : wake_on_signal)
    if (uv_async_t* const loop = wake) uv_async_send(loop);
}

// What is left of our open files for connections.
std::size_t free_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return ~std::size_t{0};
  std::size_t used = 0;
  if (DIR* const open = opendir("/proc/self/fd")) {
    while (readdir(open) != nullptr) ++used;
    closedir(open);
  }
  const std::size_t kept = used + 8;  // a connection not yet accepted, a log file, a library's
  return limit.rlim_cur > kept ? static_cast<std::size_t>(limit.rlim_cur) - kept : 1;
}

// A server with its loop, to be used on one thread.
class running {
 public:
  running(const std::string& program, const server_options& wanted, const server::factory& make,
          lane which)
      : lane_{which} {
    uv_loop_init(&loop_);
    here_.emplace(&loop_, program, wanted, make, which);
    uv_async_init(&loop_, &wake_, [](uv_async_t* handle) {
      auto& here = *static_cast<running*>(handle->data)->here_;
      if (caught == SIGTERM)
        here.drain();
      else
        here.shut_down();
    });
    wake_.data = this;
    wake_on_signal[lane_.index] = &wake_;
    here_->on_end = [this] {
      wake_on_signal[lane_.index] = nullptr;
      uv_close(reinterpret_cast<uv_handle_t*>(&wake_), nullptr);
    };
  }
  running(const running&) = delete;
  running& operator=(const running&) = delete;
  ~running() {
    here_.reset();
    uv_run(&loop_, UV_RUN_DEFAULT);  // what the wheel's handles still have to do
    uv_loop_close(&loop_);
  }

  server& here() { return *here_; }
  totals run() {
    uv_run(&loop_, UV_RUN_DEFAULT);
    return here_->all();
  }

 private:
  lane lane_;
  uv_loop_t loop_;
  uv_async_t wake_;
  std::optional<server> here_;
};

class program {
 public:
  program(const std::string& name, const server_options& wanted, const server::factory& make)
      : name_{name}, wanted_{wanted}, make_{make}, limit_{go_.get_future()} {}

  int run() {
    running first{name_, wanted_, make_, {0, wanted_.loops}};
    int status = first.here().listen(wanted_.address);
    const sockaddr_storage address = first.here().address();
    for (unsigned i = 1; i < wanted_.loops && status == 0; ++i) status = start(i, address);
    if (status < 0)
      fmt::print(stderr, "{}: cannot listen on {}: {}\n", name_, wanted_.listen,
                 uv_strerror(status));
    else
      first.here().log().listening(to_string(address));

    std::size_t limit = free_descriptors();
    if (wanted_.max_connections != 0) limit = std::min(limit, wanted_.max_connections);
    limit = std::max<std::size_t>(limit / wanted_.loops, 1);
    first.here().limit_to(limit);
    go_.set_value(status < 0 ? 0 : limit);
    if (status < 0) first.here().shut_down();
    totals all = first.run();
    for (auto& done : others_) {
      done->thread.join();
      all += done->sum;
    }
    if (status == 0) first.here().log().summary(all);
    return status < 0 ? 1 : 0;
  }

 private:
  struct other {
    std::thread thread;
    totals sum;
  };

  // A server on a thread of its own, which waits to be told how many connections it may have.
  int start(unsigned index, const sockaddr_storage& address) {
    std::promise<int> listens;
    auto status = listens.get_future();
    auto* const here = others_.emplace_back(std::make_unique<other>()).get();
    here->thread =
        std::thread{[this, here, index, &address, listens = std::move(listens)]() mutable {
          std::optional<running> mine;
          try {
            mine.emplace(name_, wanted_, make_, lane{index, wanted_.loops});
          } catch (const std::exception&) {  // the first one had it, this one not any more
            return listens.set_value(UV_ENOMEM);
          }
          listens.set_value(mine->here().listen(address));
          const std::size_t limit = limit_.get();
          if (limit == 0)
            mine->here().shut_down();
          else
            mine->here().limit_to(limit);
          here->sum = mine->run();
        }};
    return status.get();
  }

  const std::string& name_;
  const server_options& wanted_;
  const server::factory& make_;
  std::promise<std::size_t> go_;
  std::shared_future<std::size_t> limit_;
  std::vector<std::unique_ptr<other>> others_;
};

}  // namespace

int serve(const std::string& program_name, const server_options& wanted,
          const server::factory& make) {
  std::signal(SIGPIPE, SIG_IGN);  // a peer that has gone is an error of its connection
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  try {
    return program{program_name, wanted, make}.run();
  } catch (const std::exception& wrong) {
    fmt::print(stderr, "{}: {}\n", program_name, wrong.what());
    return 1;
  }
}

}  // namespace example
