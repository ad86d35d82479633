// Functions that exchange JSON objects over a bootstrap, and convert errors to such objects. A bootstrap exchanges
// bytes before ranks have a transport.
#include "bootstrap/exchange.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/json.hpp"
#include "collectives/error.hpp"

namespace collectives {

using nlohmann::json;

std::vector<json> exchange(Bootstrap& bootstrap, const json& mine, Deadline deadline, OnError on_error) {
  std::vector<json> all;
  for (const std::string& text : bootstrap.all_gather(json_text(mine), deadline)) {
    json peer_info = parse_json(text);
    if (!peer_info.is_object())
      peer_info = {{"error", "it has failed, or is no rank of this library"},
                   {"code", static_cast<int>(Errc::bootstrap)}};
    all.push_back(std::move(peer_info));
  }
  for (std::size_t rank = 0; rank < all.size() && on_error == OnError::rethrow; ++rank)
    if (all[rank].contains("error"))
      throw Error(static_cast<Errc>(all[rank].at("code").get<int>()),
                  fmt::format("rank {}: {}", rank, all[rank].at("error").get<std::string>()), bootstrap.rank(),
                  static_cast<Rank>(rank), "construction");
  return all;
}

json attempt(const std::function<json()>& work) {
  try {
    return work();
  } catch (const Error& error) {
    return {{"error", error.what()}, {"code", static_cast<int>(error.code())}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}, {"code", static_cast<int>(Errc::system)}};
  }
}

}  // namespace collectives
