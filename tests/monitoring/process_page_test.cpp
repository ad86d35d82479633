// Tests of read_page(), with which `collectives_info watch` reads the pages of other processes. Those may belong to
// other users and contain anything.
#include "monitoring/process_page.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "monitoring/flight_recorder.hpp"

namespace collectives {
namespace {

/// Page with one block and one operation.
std::unique_ptr<ProcessPage> page_with_block() {
  auto page = std::make_unique<ProcessPage>();
  page->magic = ProcessPage::kMagic;
  page->layout = ProcessPage::kLayout;
  page->process = ::getpid();
  page->blocks[0].used = 1;
  page->blocks[0].started = page->blocks[0].issued = 7;
  page->blocks[0].operations[7].sequence = 7;
  std::strcpy(page->blocks[0].operations[7].name, "fc1");
  return page;
}

Descriptor file_with(const ProcessPage& page, std::size_t bytes = sizeof(ProcessPage)) {
  Descriptor file(::memfd_create("collectives-stats", MFD_CLOEXEC));
  EXPECT_EQ(::write(file.fd(), &page, bytes), static_cast<ssize_t>(bytes));
  return file;
}

PageState read(const Descriptor& file, ProcessPage& copy) { return read_page(file.fd(), copy); }

TEST(ProcessPageOfAnother, IsRefusedIfItIsCutOrOfAnotherVersion) {
  const auto copy = std::make_unique<ProcessPage>();
  const auto page = page_with_block();
  EXPECT_EQ(read(file_with(*page), *copy), PageState::page);
  EXPECT_EQ(read(file_with(*page, 4096), *copy), PageState::other_version);
  EXPECT_EQ(read(file_with(*page, 0), *copy), PageState::other_version);
  page->layout = 99;
  EXPECT_EQ(read(file_with(*page), *copy), PageState::other_version);
  page->magic = 0;
  EXPECT_EQ(read(file_with(*page), *copy), PageState::no_page);
  EXPECT_EQ(read(Descriptor(::dup(STDIN_FILENO)), *copy), PageState::no_page);
}

TEST(ProcessPageOfAnother, HasTextsThatEndAndAreSafeToPrint) {
  auto page = page_with_block();
  CommunicatorBlock& block = page->blocks[0];
  std::memset(block.transport, '\033', sizeof block.transport);
  std::memset(block.backend, 'x', sizeof block.backend);
  std::memset(block.operations[7].name, '\a', sizeof block.operations[7].name);
  std::memset(block.operations[7].shape.plan, 'y', sizeof block.operations[7].shape.plan);
  const auto copy = std::make_unique<ProcessPage>();
  ASSERT_EQ(read(file_with(*page), *copy), PageState::page);
  const CommunicatorBlock& read_block = copy->blocks[0];
  EXPECT_EQ(read_block.transport, std::string(sizeof block.transport - 1, ' '));
  EXPECT_EQ(read_block.backend, std::string(sizeof block.backend - 1, 'x'));
  EXPECT_EQ(read_block.operations[7].name, std::string(sizeof block.operations[7].name - 1, ' '));
  char space[256];
  const std::string_view text = operation_text(read_block.operations[7], TickScale(copy->begun), space);
  EXPECT_EQ(text.find('\033'), text.npos);
  EXPECT_NE(text.find("yyy"), text.npos);
}

}  // namespace
}  // namespace collectives
