// Linked list. Each object on the list holds the link to its neighbours itself. Adding or removing an object therefore
// allocates no memory.
#pragma once

namespace collectives {

template <class T>
struct ListLink {
  T* previous = nullptr;
  T* next = nullptr;
};

/// List of objects. push_back() adds an object behind the others. `kLink` is the member of T that holds the link of
/// this list. An object with several such members can be on several lists.
template <class T, ListLink<T> T::*kLink>
class LinkedList {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  T* front() const noexcept { return first_; }
  static T* after(const T& one) noexcept { return (one.*kLink).next; }

  void push_back(T& one) noexcept {
    one.*kLink = {last_, nullptr};
    (last_ != nullptr ? (last_->*kLink).next : first_) = &one;
    last_ = &one;
  }
  void push_front(T& one) noexcept {
    one.*kLink = {nullptr, first_};
    (first_ != nullptr ? (first_->*kLink).previous : last_) = &one;
    first_ = &one;
  }
  void remove(T& one) noexcept {
    const ListLink<T> link = one.*kLink;
    (link.previous != nullptr ? (link.previous->*kLink).next : first_) = link.next;
    (link.next != nullptr ? (link.next->*kLink).previous : last_) = link.previous;
    one.*kLink = {};
  }
  T* pop_front() noexcept {
    T* const one = first_;
    if (one != nullptr) remove(*one);
    return one;
  }
  /// Removes all objects. Their links stay as they are.
  void clear() noexcept { first_ = last_ = nullptr; }
  /// Returns the first object for which is_wanted() returns true, or null.
  template <class Wanted>
  T* find(Wanted&& is_wanted) const {
    for (T* one = first_; one != nullptr; one = after(*one))
      if (is_wanted(*one)) return one;
    return nullptr;
  }
  /// Calls visit() for each object. visit() may remove its object.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (T* one = first_; one != nullptr;) {
      T* const next = after(*one);
      visit(*one);
      one = next;
    }
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace collectives
