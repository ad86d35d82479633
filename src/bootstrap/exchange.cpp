// Functions by which ranks exchange JSON objects over a bootstrap. Other functions of this file convert errors to JSON
// objects. A bootstrap exchanges bytes before ranks have a transport. Bytes from another rank may be invalid, so this
// file and JsonRecord check them.
#include "bootstrap/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "base/errc.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "collectives/error.hpp"

namespace collectives {

using nlohmann::json;

namespace {

/// Maximum bytes of an error text in a JSON object.
constexpr std::size_t kMostErrorBytes = 8192;

/// Time for which a rank still waits for results of other ranks after it has found a lost rank.
constexpr auto kPatienceAfterLoss = std::chrono::seconds(1);

/// Returns `text`, cut to a third of kMostErrorBytes. Reason: JSON replaces each invalid byte by the character U+FFFD,
/// which has three bytes.
std::string sent_text(std::string_view text) { return std::string(text.substr(0, kMostErrorBytes / 3)); }

}  // namespace

JsonRecord record_of(std::size_t rank, std::string_view text) {
  std::string why;
  json object = parse_json(text, {.most_bytes = kMostRecordBytes}, &why);
  if (!object.is_object()) {
    if (!text.empty() && why.empty()) why = "it is no object";
    object = {{"error", text.empty() ? "it has failed, or is no rank of this library"
                                     : fmt::format("it sent what is no record of this library: {}", why)},
              {"code", static_cast<int>(Errc::bootstrap)}};
  }
  return {std::move(object), fmt::format("the record of rank {}", rank)};
}

std::string error_in(const JsonRecord& record) {
  return record.has("error") ? printable_text(record.text("error", kMostErrorBytes), kMostErrorBytes) : "";
}

Errc code_in(const JsonRecord& record) { return errc_of(record.integer<std::int64_t>("code", INT64_MIN, INT64_MAX)); }

std::vector<JsonRecord> exchange(Bootstrap& bootstrap, const json& mine, Deadline deadline, OnError on_error) {
  std::vector<JsonRecord> all;
  for (const std::string& text : bootstrap.all_gather(json_text(mine), deadline))
    all.push_back(record_of(all.size(), text));
  for (std::size_t rank = 0; rank < all.size() && on_error == OnError::rethrow; ++rank)
    if (all[rank].has("error"))
      throw Error(code_in(all[rank]), fmt::format("rank {}: {}", rank, error_in(all[rank])), bootstrap.rank(),
                  static_cast<Rank>(rank), "construction");
  return all;
}

std::vector<JsonRecord> exchange_result(Bootstrap& bootstrap, const json& mine, Deadline deadline, OnError on_error) {
  const JsonRecord own(mine, "this rank's result");
  if (!own.has("error") || code_in(own) != Errc::peer_lost) return exchange(bootstrap, mine, deadline, on_error);
  try {
    return exchange(bootstrap, mine, std::min(deadline, Deadline::in(kPatienceAfterLoss)), on_error);
  } catch (const Error& error) {
    if (error.code() != Errc::timeout) throw;
    throw Error(Errc::peer_lost, fmt::format("rank {}: {}", bootstrap.rank(), error_in(own)), bootstrap.rank(),
                own.integer<Rank>("peer", kNoRank, bootstrap.size() - 1), "construction");
  }
}

json attempt(const std::function<json()>& work) {
  try {
    return work();
  } catch (const Error& error) {
    return {{"error", sent_text(error.what())}, {"code", static_cast<int>(error.code())}, {"peer", error.peer()}};
  } catch (const std::exception& error) {
    return {{"error", sent_text(error.what())}, {"code", static_cast<int>(Errc::system)}};
  }
}

}  // namespace collectives
