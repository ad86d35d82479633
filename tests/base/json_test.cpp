// Tests of JSON from strangers: limits of size and depth, the typed reader, and printable texts.
#include "base/json.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/errc.hpp"
#include "base/hex.hpp"
#include "base/json_record.hpp"
#include "base/text.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

std::string reason(const std::string& text, std::size_t most_bytes = 1 << 20) {
  std::string why;
  EXPECT_TRUE(parse_json(text, {.most_bytes = most_bytes}, &why).is_discarded()) << text.substr(0, 100);
  return why;
}

TEST(Json, RefusesATextThatIsTooDeep) {
  for (const std::size_t depth : {17, 1000, 300'000}) {
    EXPECT_EQ(reason(std::string(depth, '[')), "it has more than 16 levels");
    EXPECT_EQ(reason(std::string(depth, '[') + std::string(depth, ']')), "it has more than 16 levels");
  }
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(reason(objects), "it has more than 16 levels");
  EXPECT_TRUE(parse_json(std::string(15, '[') + std::string(15, ']')).is_array());
}

TEST(Json, RefusesATextThatIsTooLong) { EXPECT_EQ(reason("[1,2,3]", 6), "it has more than 6 bytes"); }

TEST(Json, ReportsAMistakeWithoutAnExceptionOfTheJsonLibrary) {
  for (const char* text : {"", "{", "[1,]", "\xff", "{\"a\":1e999}", "nul", "\"\\ud800\""}) {
    const std::string why = reason(text);
    EXPECT_FALSE(why.empty());
    EXPECT_EQ(why.find("json.exception"), std::string::npos) << why;
  }
}

std::string error_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::bootstrap);
    return error.what();
  }
  return "no error";
}

TEST(JsonRecord, NamesTheFieldThatDoesNotFit) {
  const JsonRecord record(parse_json(R"({"cores":-1,"host":7,"big":18446744073709551615,"half":0.5,"on":255,)"
                                     R"("list":[1,"a"],"deep":{"a":[]},"ok":3,"inf":1e308,"text":"a"})"),
                          "the record of rank 2");
  const auto whole = [&](const char* name) { return error_of([&] { record.integer(name, 1, 1000); }); };
  EXPECT_EQ(whole("cores"), "the record of rank 2: \"cores\" is -1; it must be a whole number from 1 to 1000");
  EXPECT_EQ(whole("none"), "the record of rank 2: \"none\" is missing");
  EXPECT_NE(whole("big").find("is 18446744073709551615"), std::string::npos);
  EXPECT_NE(whole("half").find("is 0.5"), std::string::npos);
  EXPECT_NE(whole("list").find("is a list"), std::string::npos);
  EXPECT_EQ(whole("ok"), "no error");
  EXPECT_NE(error_of([&] { record.text("host"); }).find("\"host\" is 7"), std::string::npos);
  EXPECT_NE(error_of([&] { record.text("text", 0); }).find("at most 0 bytes"), std::string::npos);
  EXPECT_NE(error_of([&] { record.boolean("on"); }).find("is 255"), std::string::npos);
  EXPECT_NE(error_of([&] { record.number("inf", 0, 1); }).find("from 0 to 1"), std::string::npos);
  EXPECT_NE(error_of([&] { record.integers("list", 0, 9, 5); }).find("\"a\""), std::string::npos);
  EXPECT_NE(error_of([&] { record.integers("list", 0, 9, 1); }).find("at most 1 items"), std::string::npos);
  EXPECT_NE(error_of([&] { record.object("list"); }).find("an object"), std::string::npos);
  EXPECT_NE(error_of([&] { record.object("deep").text("a"); }).find("\"deep\": \"a\" is a list"), std::string::npos);
  EXPECT_NE(error_of([&] { record.shown("deep"); }).find("an object"), std::string::npos);
}

TEST(Errc, OfANumberThatIsNoCodeIsBootstrap) {
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{9}, std::int64_t{99}, std::int64_t{-1}, INT64_MAX})
    EXPECT_EQ(errc_of(number), Errc::bootstrap) << number;
  EXPECT_EQ(errc_of(4), Errc::timeout);
}

TEST(PrintableText, HasNoBytesThatControlATerminal) {
  EXPECT_EQ(printable_text("a\033[2Jb\r\n\x7f"), "a [2Jb   ");
  EXPECT_EQ(printable_text("\xc2\x9b[2J"), "  [2J") << "U+009B begins a sequence, too";
  EXPECT_EQ(printable_text("Gr\xc3\xbc\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "Gr\xc3\xbc\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(printable_text("\xff\xc3"), "  ");
  EXPECT_EQ(printable_text("abcdef", 3), "abc...");
}

TEST(Error, ShowsNoControlCharactersOfAPeer) {
  const Error error(Errc::bootstrap, "rank 1: \033]0;x\007 failed\nsecond line", 0, 1, "all\033_reduce");
  EXPECT_STREQ(error.what(), "rank 1:  ]0;x  failed\nsecond line");
  EXPECT_EQ(error.operation(), "all _reduce");
}

TEST(Hex, RefusesWhatIsNoHexadecimalText) {
  EXPECT_EQ(from_hex(to_hex("\x7f\xff\x10")), "\x7f\xff\x10");
  for (const char* text : {"0", "0g", "zz", "0x", " 1", "-1", "FF"}) EXPECT_FALSE(from_hex(text)) << text;
}

}  // namespace
}  // namespace collectives
