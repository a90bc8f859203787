// sink_body.hpp - a body for Beast's parser that counts its bytes and keeps none.
#pragma once
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstdint>

namespace http_server {

struct sink_body {
  using value_type = std::uint64_t;  // bytes seen

  class reader {
   public:
    template <bool IsRequest, class Fields>
    reader(boost::beast::http::header<IsRequest, Fields>&, value_type& seen) : seen_{seen} {}
    void init(const boost::optional<std::uint64_t>&, boost::beast::error_code& ec) { ec = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::beast::error_code& ec) {
      ec = {};
      const std::size_t n = boost::asio::buffer_size(buffers);
      seen_ += n;
      return n;
    }
    void finish(boost::beast::error_code& ec) { ec = {}; }

   private:
    value_type& seen_;
  };
};

}  // namespace http_server
