// Names that code blocks of the documents may use without declaring them. The blocks are compiled, never linked.
#pragma once

#include <collectives/collectives.hpp>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

using namespace collectives;  // NOLINT: pages use names without their namespace

extern Communicator comm;
extern std::vector<float> gradient, sum, mine, part, all;
extern std::vector<std::vector<float>> gradients;
extern Rank root;
