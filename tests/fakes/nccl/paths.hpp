// Paths of the libraries with a fake of NCCL, which tests load in place of NCCL.
//
// They are constants of one small source file. If the tests contained them, the compiler's cache would find no object
// of the tests in a clone at another path.
#pragma once

namespace collectives::testing {

extern const char* const kFakeNccl;       ///< has every function that the library calls
extern const char* const kWithoutMemory;  ///< lacks ncclCommRegister
extern const char* const kThatLacks;      ///< lacks ncclCommSplit and ncclSend
extern const char* const kThatIsOld;      ///< version 2.18.5
extern const char* const kOfTomorrow;     ///< version 3.1

}  // namespace collectives::testing
