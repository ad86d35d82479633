// An MPI program whose ranks make different calls. A preloaded drop-in must notice every pair of them. Rank 0 makes the
// first call of a pair, and the other ranks make the second one. Then all ranks make a barrier. Each rank must get an
// error code, and its line on stderr must have the words of all other ranks.
//
//   different_calls [N [nonblocking]]      N: tries every N-th pair
//
// The vectors are so long that the drop-in takes all calls over. Each pair has a communicator of its own, because a
// mismatch breaks the communicator.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

int rank = 0, size = 1;
bool nonblocking = false;
std::vector<double> in(60'000), out(60'000);

enum class Kind {
  barrier,
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  all_gather_v,
  reduce_scatter_block,
  reduce_scatter,
  all_to_all,
  all_to_all_v,
  gather,
  gather_v,
  scatter,
  scatter_v,
  scan,
  exscan
};

struct CallOfMpi {
  const char* title;
  Kind kind;
  int count = 5000;
  MPI_Datatype type = MPI_INT;
  MPI_Op op = MPI_SUM;
  int root = 0;
  bool falling = false;  ///< counts of ranks fall, otherwise they rise
  bool refused = false;  ///< MPI refuses the call on the rank that makes it
};

/// Returns a type of an int and a double without a gap, in this order.
MPI_Datatype int_and_double() {
  const int lengths[] = {1, 1};
  const MPI_Aint places[] = {0, sizeof(int)};
  const MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE};
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_struct(2, lengths, places, types, &type);
  MPI_Type_commit(&type);
  return type;
}

std::vector<CallOfMpi> calls() {
  return {{"Barrier", Kind::barrier},
          {"Allreduce", Kind::all_reduce},
          {"Allreduce of one more", Kind::all_reduce, 5001},
          {"Allreduce of few", Kind::all_reduce, 1},
          {"Allreduce of float", Kind::all_reduce, 5000, MPI_FLOAT},
          {"Allreduce by max", Kind::all_reduce, 5000, MPI_INT, MPI_MAX},
          {"Allreduce by min", Kind::all_reduce, 5000, MPI_INT, MPI_MIN},
          {"Allreduce that MPI refuses", Kind::all_reduce, -1, MPI_INT, MPI_SUM, 0, false, true},
          {"Reduce to 0", Kind::reduce},
          {"Reduce to 1", Kind::reduce, 5000, MPI_INT, MPI_SUM, 1},
          {"Reduce that MPI refuses", Kind::reduce, 5000, MPI_FLOAT, MPI_BAND, 0, false, true},
          {"Bcast from 0", Kind::broadcast},
          {"Bcast from 1", Kind::broadcast, 5000, MPI_INT, MPI_SUM, 1},
          {"Bcast of one more", Kind::broadcast, 5001},
          {"Bcast of double", Kind::broadcast, 5000, MPI_DOUBLE},
          {"Bcast of float", Kind::broadcast, 5000, MPI_FLOAT},
          {"Bcast of bytes", Kind::broadcast, 20000, MPI_BYTE},
          {"Bcast of double and int", Kind::broadcast, 5000, MPI_DOUBLE_INT},
          {"Bcast of int and double", Kind::broadcast, 5000, int_and_double()},
          {"Bcast that MPI refuses", Kind::broadcast, 5000, MPI_INT, MPI_SUM, 99, false, true},
          {"Allgather", Kind::all_gather},
          {"Allgather of one more", Kind::all_gather, 5001},
          {"Allgather of bytes", Kind::all_gather, 20000, MPI_BYTE},
          {"Allgatherv of rising parts", Kind::all_gather_v},
          {"Allgatherv of falling parts", Kind::all_gather_v, 5000, MPI_INT, MPI_SUM, 0, true},
          {"Reduce_scatter_block", Kind::reduce_scatter_block},
          {"Reduce_scatter of rising parts", Kind::reduce_scatter},
          {"Reduce_scatter of falling parts", Kind::reduce_scatter, 5000, MPI_INT, MPI_SUM, 0, true},
          {"Allreduce by bitwise and", Kind::all_reduce, 5000, MPI_INT, MPI_BAND},
          {"Allreduce of short", Kind::all_reduce, 5000, MPI_SHORT},
          {"Allreduce by location", Kind::all_reduce, 5000, MPI_2INT, MPI_MAXLOC},
          {"Alltoall", Kind::all_to_all},
          {"Alltoall of float", Kind::all_to_all, 5000, MPI_FLOAT},
          {"Alltoallv", Kind::all_to_all_v},
          {"Gather to 0", Kind::gather},
          {"Gather to 1", Kind::gather, 5000, MPI_INT, MPI_SUM, 1},
          {"Gatherv to 0", Kind::gather_v},
          {"Gatherv that MPI refuses", Kind::gather_v, 5000, MPI_INT, MPI_SUM, 99, false, true},
          {"Scatter from 0", Kind::scatter},
          {"Scatterv from 1", Kind::scatter_v, 5000, MPI_INT, MPI_SUM, 1},
          {"Scan", Kind::scan},
          {"Exscan", Kind::exscan}};
}

/// Returns the counts of all ranks, which rise or fall with the rank.
std::vector<int> counts_of(const CallOfMpi& call) {
  std::vector<int> counts;
  for (int r = 0; r < size; ++r) counts.push_back(call.count + (call.falling ? size - r : r + 1));
  return counts;
}

/// Makes a call whose buffers consist of a block for each rank.
int make_blocks(const CallOfMpi& call, const std::vector<int>& counts, const std::vector<int>& offsets, MPI_Comm comm) {
  const std::vector<int> equal(counts.size(), call.count);  // an all-to-all needs equal lengths in both directions
  const int count = call.count, mine = counts[static_cast<std::size_t>(rank)];
  const MPI_Datatype type = call.type;
  switch (call.kind) {
    case Kind::all_to_all: return MPI_Alltoall(in.data(), count, type, out.data(), count, type, comm);
    case Kind::all_to_all_v:
      return MPI_Alltoallv(in.data(), equal.data(), offsets.data(), type, out.data(), equal.data(), offsets.data(),
                           type, comm);
    case Kind::gather: return MPI_Gather(in.data(), count, type, out.data(), count, type, call.root, comm);
    case Kind::gather_v:
      return MPI_Gatherv(in.data(), mine, type, out.data(), counts.data(), offsets.data(), type, call.root, comm);
    case Kind::scatter: return MPI_Scatter(in.data(), count, type, out.data(), count, type, call.root, comm);
    case Kind::scatter_v:
      return MPI_Scatterv(in.data(), counts.data(), offsets.data(), type, out.data(), mine, type, call.root, comm);
    default: return MPI_ERR_OTHER;
  }
}

int make_blocking(const CallOfMpi& call, MPI_Comm comm) {
  const std::vector<int> counts = counts_of(call);
  std::vector<int> offsets(counts.size());
  for (std::size_t r = 1; r < counts.size(); ++r) offsets[r] = offsets[r - 1] + counts[r - 1];
  const int mine = counts[static_cast<std::size_t>(rank)];
  switch (call.kind) {
    case Kind::barrier: return MPI_Barrier(comm);
    case Kind::all_reduce: return MPI_Allreduce(in.data(), out.data(), call.count, call.type, call.op, comm);
    case Kind::reduce: return MPI_Reduce(in.data(), out.data(), call.count, call.type, call.op, call.root, comm);
    case Kind::broadcast: return MPI_Bcast(out.data(), call.count, call.type, call.root, comm);
    case Kind::all_gather:
      return MPI_Allgather(in.data(), call.count, call.type, out.data(), call.count, call.type, comm);
    case Kind::all_gather_v:
      return MPI_Allgatherv(in.data(), mine, call.type, out.data(), counts.data(), offsets.data(), call.type, comm);
    case Kind::reduce_scatter_block:
      return MPI_Reduce_scatter_block(in.data(), out.data(), call.count, call.type, call.op, comm);
    case Kind::reduce_scatter:
      return MPI_Reduce_scatter(in.data(), out.data(), counts.data(), call.type, call.op, comm);
    case Kind::scan: return MPI_Scan(in.data(), out.data(), call.count, call.type, call.op, comm);
    case Kind::exscan: return MPI_Exscan(in.data(), out.data(), call.count, call.type, call.op, comm);
    default: return make_blocks(call, counts, offsets, comm);
  }
  return MPI_SUCCESS;
}

/// Makes the non-blocking form of a call, if the program has it.
int make(const CallOfMpi& call, MPI_Comm comm) {
  if (!nonblocking) return make_blocking(call, comm);
  MPI_Request request = MPI_REQUEST_NULL;
  int code = MPI_SUCCESS;
  switch (call.kind) {
    case Kind::barrier: code = MPI_Ibarrier(comm, &request); break;
    case Kind::all_reduce:
      code = MPI_Iallreduce(in.data(), out.data(), call.count, call.type, call.op, comm, &request);
      break;
    case Kind::reduce:
      code = MPI_Ireduce(in.data(), out.data(), call.count, call.type, call.op, call.root, comm, &request);
      break;
    case Kind::broadcast: code = MPI_Ibcast(out.data(), call.count, call.type, call.root, comm, &request); break;
    case Kind::all_gather:
      code = MPI_Iallgather(in.data(), call.count, call.type, out.data(), call.count, call.type, comm, &request);
      break;
    case Kind::reduce_scatter_block:
      code = MPI_Ireduce_scatter_block(in.data(), out.data(), call.count, call.type, call.op, comm, &request);
      break;
    case Kind::all_to_all:
      code = MPI_Ialltoall(in.data(), call.count, call.type, out.data(), call.count, call.type, comm, &request);
      break;
    case Kind::gather:
      code =
          MPI_Igather(in.data(), call.count, call.type, out.data(), call.count, call.type, call.root, comm, &request);
      break;
    case Kind::scan: code = MPI_Iscan(in.data(), out.data(), call.count, call.type, call.op, comm, &request); break;
    default: return make_blocking(call, comm);
  }
  return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
}

/// Standard error of this process, which goes to a file in memory.
class StderrFile {
 public:
  StderrFile() : terminal_(::dup(STDERR_FILENO)), file_(::memfd_create("stderr", MFD_CLOEXEC)) {
    ::dup2(file_, STDERR_FILENO);
  }
  /// Returns the text since the last call.
  std::string take() {
    std::string text(static_cast<std::size_t>(::lseek(file_, 0, SEEK_CUR)), '\0');
    const ssize_t bytes = ::pread(file_, text.data(), text.size(), 0);
    text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    if (::ftruncate(file_, 0) == 0) ::lseek(file_, 0, SEEK_SET);
    return text;
  }
  void restore() const { ::dup2(terminal_, STDERR_FILENO); }

 private:
  int terminal_, file_;
};

/// Result of a pair on one rank.
struct Report {
  int failed = 0;  ///< whether a call has returned an error code
  char words[500] = {};
};

/// Tries a pair of calls on a communicator of its own.
Report try_pair(const CallOfMpi& mine, StderrFile& lines) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  // Errors of requests come to the handler of MPI_COMM_WORLD.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  make_blocking({"", Kind::all_reduce, 1}, comm);
  lines.take();
  Report report;
  if (make(mine, comm) != MPI_SUCCESS && !mine.refused) report.failed = 1;
  if (MPI_Barrier(comm) != MPI_SUCCESS) report.failed = 1;
  // "collectives: error: rank 1: MPI_Allreduce #2: ..." has the same words on every rank from "MPI_Allreduce" on. A
  // line before it may be that of a refused call.
  std::string text = lines.take();
  const std::size_t begin = text.rfind("error: rank " + std::to_string(rank) + ": MPI_");
  text = begin == text.npos ? "" : text.substr(text.find("MPI_", begin));
  std::strncpy(report.words, text.substr(0, text.find('\n')).c_str(), sizeof report.words - 1);
  MPI_Comm_free(&comm);
  return report;
}

/// Returns what is wrong with the reports of all ranks; empty: nothing.
std::string fault_of(const std::vector<Report>& reports) {
  const std::string_view words = reports[0].words;
  std::string fault;
  if (std::ranges::any_of(reports, [](const Report& report) { return report.failed == 0; })) fault += " unnoticed";
  if (std::ranges::any_of(reports, [&](const Report& report) { return report.words != words; }))
    fault += " other words";
  if (words.find(" #2: ") == words.npos) fault += " names another call";
  if (words.find("rank 0 passed") == words.npos && words.find("rank 0 refused") == words.npos)
    fault += " names no rank";
  return fault;
}

}  // namespace

int main(int argc, char** argv) {
  const int stride = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  nonblocking = argc > 2 && std::string_view(argv[2]) == "nonblocking";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  StderrFile lines;
  const std::vector<CallOfMpi> all = calls();
  int tried = 0, pairs = 0, faults = 0;
  for (std::size_t first = 0; first < all.size(); ++first)
    for (std::size_t second = 0; second < all.size(); ++second) {
      if (first == second || tried++ % stride != 0) continue;
      const Report mine = try_pair(all[rank == 0 ? first : second], lines);
      std::vector<Report> reports(static_cast<std::size_t>(size));
      MPI_Gather(&mine, sizeof mine, MPI_BYTE, reports.data(), sizeof mine, MPI_BYTE, 0, MPI_COMM_WORLD);
      if (rank != 0) continue;
      ++pairs;
      const std::string fault = fault_of(reports);
      if (fault.empty()) continue;
      ++faults;
      std::printf("%s | %s:%s\n", all[first].title, all[second].title, fault.c_str());
      for (const Report& report : reports) std::printf("  failed %d: %s\n", report.failed, report.words);
      std::fflush(stdout);
    }
  lines.restore();
  if (rank == 0) std::printf("%d calls, %d pairs, %d faults\n", static_cast<int>(all.size()), pairs, faults);
  MPI_Bcast(&faults, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  return faults == 0 ? 0 : 1;
}
