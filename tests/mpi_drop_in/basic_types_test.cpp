// Tests of TypeSequence, by which the drop-in compares the basic types of MPI data.
#include "mpi_drop_in/basic_types.hpp"

#include <gtest/gtest.h>

namespace collectives::drop_in {
namespace {

TypeSequence of(BasicKind kind, std::size_t bytes) { return TypeSequence(basic_type(kind, bytes)); }
TypeSequence ints() { return of(BasicKind::signed_integer, 4); }
TypeSequence doubles() { return of(BasicKind::floating, 8); }

TypeSequence then(TypeSequence first, const TypeSequence& second) {
  first.append(second);
  return first;
}

TEST(TypeSequence, OfOneTypeIsThatTypeHoweverItIsRepeated) {
  EXPECT_EQ(ints().repeated(12).elements(5), (Elements{DataType::i32, 0}));
  EXPECT_EQ(then(ints(), ints().repeated(3)).elements(1), (Elements{DataType::i32, 0}));
  EXPECT_EQ(then(TypeSequence(), ints()).elements(1), (Elements{DataType::i32, 0}));
}

TEST(TypeSequence, OfATypeThatTheLibraryLacksHasItsNumber) {
  const auto bytes = of(BasicKind::byte, 1), chars = of(BasicKind::unsigned_integer, 1);
  EXPECT_EQ(bytes.repeated(9).elements(1), (Elements{DataType::u8, basic_type(BasicKind::byte, 1)}));
  EXPECT_EQ(chars.elements(9), (Elements{DataType::u8, 0}));
}

TEST(TypeSequence, OfSeveralTypesDependsOnTheirOrderAndNumberAlone) {
  const TypeSequence pair = then(doubles(), ints()), two = then(pair, pair);
  EXPECT_EQ(pair.elements(3000), two.elements(1500));
  EXPECT_EQ(pair.elements(3000), two.repeated(1500).elements(1));
  EXPECT_EQ(then(pair.repeated(17), pair.repeated(4)).elements(1), pair.elements(21));
  EXPECT_NE(pair.elements(3000), then(ints(), doubles()).elements(3000));
  EXPECT_NE(pair.elements(3000), pair.elements(3001));
  EXPECT_NE(then(doubles().repeated(2), ints().repeated(2)).elements(1), two.elements(1));
}

TEST(TypeSequence, OfNothingIsAnyType) {
  EXPECT_EQ(then(ints(), TypeSequence()).elements(1), (Elements{DataType::i32, 0}));
  EXPECT_EQ(then(then(doubles(), ints()), doubles().repeated(0)).elements(2), then(doubles(), ints()).elements(2));
}

}  // namespace
}  // namespace collectives::drop_in
