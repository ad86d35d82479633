// Includes all public C++ headers of the library except "collectives/mpi.hpp".
#pragma once

#include "collectives/bootstrap.hpp"
#include "collectives/codec.hpp"
#include "collectives/communicator.hpp"
#include "collectives/deadline.hpp"
#include "collectives/device_memory.hpp"
#include "collectives/error.hpp"
#include "collectives/memory.hpp"
#include "collectives/messages.hpp"
#include "collectives/plan.hpp"
#include "collectives/records.hpp"
#include "collectives/topology.hpp"
#include "collectives/transport.hpp"
#include "collectives/tuning.hpp"
#include "collectives/types.hpp"
#include "collectives/version.hpp"
