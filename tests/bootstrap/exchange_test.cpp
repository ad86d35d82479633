// Tests of the records that ranks exchange during construction, when one rank sends other bytes than this library does.
#include "bootstrap/exchange.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/communicator.hpp"
#include "collectives/error.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

using nlohmann::json;

/// Bootstrap of a rank that changes its text in one exchange, or sends nothing of its own.
class ForgingBootstrap final : public Bootstrap {
 public:
  using Forge = std::function<std::string(std::string_view)>;
  ForgingBootstrap(Bootstrap& inner, int exchange, Forge forge)
      : inner_(inner), left_(exchange), forge_(std::move(forge)) {}
  std::string_view name() const noexcept override { return inner_.name(); }
  Rank rank() const noexcept override { return inner_.rank(); }
  int size() const noexcept override { return inner_.size(); }
  std::string host() const override { return inner_.host(); }
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) override {
    return inner_.all_gather(left_-- == 0 ? forge_(mine) : std::string(mine), deadline);
  }

 private:
  Bootstrap& inner_;
  int left_;
  Forge forge_;
};

/// Returns the errors of three ranks that construct a communicator, if rank 1 forges its text in exchange number
/// `exchange`.
std::vector<std::string> errors(int exchange, const ForgingBootstrap::Forge& forge) {
  std::vector<std::string> texts(3, "no error");
  run_ranks(3, [&](Bootstrap& bootstrap) {
    ForgingBootstrap forging(bootstrap, bootstrap.rank() == 1 ? exchange : -1, forge);
    try {
      Communicator comm(forging, {.timeout = std::chrono::seconds(20)});
    } catch (const Error& error) {
      texts[static_cast<std::size_t>(bootstrap.rank())] = error.what();
      EXPECT_GE(static_cast<int>(error.code()), 1);
      EXPECT_LE(static_cast<int>(error.code()), 8);
    }
  });
  return texts;
}

/// Returns the text of rank 1's record with one field replaced.
ForgingBootstrap::Forge with(const std::string& field, const std::string& value) {
  return [=](std::string_view mine) {
    json record = parse_json(mine);
    record[field] = "REPLACED";
    std::string text = json_text(record);
    const std::string place = "\"REPLACED\"";
    return text.replace(text.find(place), place.size(), value);
  };
}

void expect_everywhere(const std::vector<std::string>& texts, const std::string& part) {
  for (const std::string& text : texts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(ForgedRecord, ThatIsTooDeepIsAnErrorOnEveryRank) {
  const std::string deep(300'000, '[');
  expect_everywhere(errors(0, with("protocol", deep + std::string(deep.size(), ']'))), "more than 65536 bytes");
  const std::string shallow(1'000, '[');
  expect_everywhere(errors(0, with("protocol", shallow + std::string(shallow.size(), ']'))), "more than 16 levels");
}

TEST(ForgedRecord, OfTenMegabytesCostsNoMemoryOfItsSize) {
  const std::string text = "{\"a\":[" + std::string(10 << 20, '1') + "]}";
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  expect_everywhere(errors(0, [&](std::string_view) { return text; }), "more than 65536 bytes");
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LE(after.ru_maxrss - before.ru_maxrss, 256 << 10) << "KiB: the bootstrap of threads copies the text";
}

TEST(ForgedRecord, WithAFieldOfAnotherTypeNamesTheRankAndTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {"protocol", "[]"},      {"protocol", "{}"},     {"host", "7"},     {"affinity", "[-1]"},
      {"affinity", "[1e300]"}, {"affinity", "7"},      {"cores", "0"},    {"cores", "1e9"},
      {"cores", "\"4\""},      {"pid", "99999999999"}, {"context", "-1"}, {"backend", "[[[[[[]]]]]]"},
      {"trace", "[]"},         {"deterministic", "{}"}};
  for (const auto& [field, value] : cases) {
    const std::vector<std::string> texts = errors(0, with(field, value));
    for (const std::string& text : texts) {
      EXPECT_NE(text, "no error") << field << " " << value;
      EXPECT_EQ(text.find("json.exception"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    }
  }
}

TEST(ForgedRecord, ThatIsNoJsonObjectIsAnErrorOnEveryRank) {
  for (const char* text : {"", "7", "[]", "\xff\xfe", "{\"a\":", "null"})
    expect_everywhere(errors(0, [=](std::string_view) { return text; }), "rank 1");
}

TEST(ForgedRecord, WithAnErrorOfItsOwnIsPrintableAndHasACode) {
  const auto texts =
      errors(0, [](std::string_view) { return "{\"error\":\"\\u001b[2Jall is well\\u009b\\n\",\"code\":99}"; });
  expect_everywhere(texts, "rank 1:  [2Jall is well");
  for (const std::string& text : texts) EXPECT_EQ(text.find('\033'), std::string::npos);
  for (const char* code : {"null", "[]", "1e99", "\"x\"", "-7", "18446744073709551615"})
    expect_everywhere(
        errors(0, [=](std::string_view) { return std::string("{\"error\":\"x\",\"code\":") + code + "}"; }), "rank 1");
}

TEST(ForgedRecord, WithTheAddressOfAnArenaIsRefused) {
  // Rank 0 is the first rank of the host, whose handle the others use, so it forges here.
  std::vector<std::string> texts(2, "no error");
  run_ranks(2, [&](Bootstrap& bootstrap) {
    const std::uint64_t word = 0;
    const std::string handle =
        std::to_string(::getpid()) + " 5 77 " + std::to_string(reinterpret_cast<std::uintptr_t>(&word));
    const auto forge = [&](std::string_view) { return json_text(json{{"arena", handle}}); };
    // Threads are not measured, so the exchange of the arena follows that of the records.
    ForgingBootstrap forging(bootstrap, bootstrap.rank() == 0 ? 1 : -1, forge);
    try {
      Communicator comm(forging, {.timeout = std::chrono::seconds(20)});
    } catch (const Error& error) {
      texts[static_cast<std::size_t>(bootstrap.rank())] = error.what();
    }
  });
  for (const std::string& text : texts) EXPECT_NE(text.find("not the handle of an arena"), std::string::npos) << text;
}

// ---- results ----

/// Bootstrap of a rank whose peers never come. It keeps the deadline of the last exchange.
class LonelyBootstrap final : public Bootstrap {
 public:
  std::string_view name() const noexcept override { return "lonely"; }
  Rank rank() const noexcept override { return 1; }
  int size() const noexcept override { return 3; }
  std::vector<std::string> all_gather(std::string_view, Deadline deadline) override {
    left = deadline.milliseconds_left(3'600'000);
    throw Error(Errc::timeout, "rank 2 did not come", 1, 2);
  }
  int left = 0;  // milliseconds
};

TEST(ExchangeOfResults, WaitsBrieflyIfThisRankKnowsOfALostRank) {
  LonelyBootstrap bootstrap;
  const auto error_after = [&](Errc code) {
    const json mine = attempt([&]() -> json { throw Error(code, "rank 0 was lost: it is gone", 1, 0); });
    try {
      exchange_result(bootstrap, mine, Deadline::in(std::chrono::hours(1)), OnError::collect);
    } catch (const Error& error) {
      return error;
    }
    return Error(Errc::system, "no error");
  };
  const Error lost = error_after(Errc::peer_lost);
  EXPECT_LE(bootstrap.left, 1000);
  EXPECT_EQ(lost.code(), Errc::peer_lost);
  EXPECT_EQ(lost.peer(), 0);
  EXPECT_EQ(std::string(lost.what()), "rank 1: rank 0 was lost: it is gone");
  const Error other = error_after(Errc::bootstrap);
  EXPECT_GT(bootstrap.left, 1'000'000);
  EXPECT_EQ(other.code(), Errc::timeout);
}

}  // namespace
}  // namespace collectives::testing
