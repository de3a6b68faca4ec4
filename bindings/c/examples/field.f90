! SPDX-License-Identifier: Apache-2.0 OR MIT
! Writes a field of a Fortran program to a store, and reads it into another array without a copy between:
!
!     gfortran field.f90 $(pkg-config --libs terrace) -o field && ./field my-store
!
! Names end with NUL, as texts of C do.
module terrace
    use, intrinsic :: iso_c_binding
    implicit none

    integer(c_int), parameter :: terrace_ok = 0

    interface
        integer(c_int) function terrace_open(address, flags, store) bind(c)
            import
            character(kind=c_char), intent(in) :: address(*)
            integer(c_int32_t), value :: flags
            type(c_ptr), intent(out) :: store
        end function

        integer(c_int) function terrace_close(store) bind(c)
            import
            type(c_ptr), value :: store
        end function

        integer(c_int) function terrace_put(store, name, data, size_bytes, options) bind(c)
            import
            type(c_ptr), value :: store, data, options
            character(kind=c_char), intent(in) :: name(*)
            integer(c_size_t), value :: size_bytes
        end function

        integer(c_int) function terrace_get_into(store, name, offset_bytes, buffer, size_bytes, count) bind(c)
            import
            type(c_ptr), value :: store, buffer
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int64_t), value :: offset_bytes
            integer(c_size_t), value :: size_bytes
            integer(c_size_t), intent(out) :: count
        end function

        type(c_ptr) function terrace_error() bind(c)
            import
        end function

        integer(c_size_t) function strlen(text) bind(c)
            import
            type(c_ptr), value :: text
        end function
    end interface
contains
    ! Ends the program with the text of the last failure, unless there was none.
    subroutine check(status)
        integer(c_int), intent(in) :: status
        character(kind=c_char), pointer :: text(:)
        type(c_ptr) :: message

        if (status == terrace_ok) return
        message = terrace_error()
        call c_f_pointer(message, text, [strlen(message)])
        print *, text
        error stop 1
    end subroutine
end module

program field
    use terrace
    implicit none

    real(c_double), target :: temperature(200, 100), again(200, 100), row(200)
    character(len=4096) :: address
    integer(c_size_t) :: count, field_bytes
    type(c_ptr) :: store

    call get_command_argument(1, address)
    call random_number(temperature)
    field_bytes = int(size(temperature), c_size_t) * c_sizeof(temperature(1, 1))

    call check(terrace_open(trim(address) // c_null_char, 0, store))
    call check(terrace_put(store, "climate/t2m" // c_null_char, c_loc(temperature), field_bytes, c_null_ptr))
    call check(terrace_get_into(store, "climate/t2m" // c_null_char, 0_c_int64_t, c_loc(again), field_bytes, count))
    if (count /= field_bytes .or. any(again /= temperature)) error stop "the field is another one"
    ! Columns lie one behind the other: the third one alone.
    call check(terrace_get_into(store, "climate/t2m" // c_null_char, int(2 * c_sizeof(row), c_int64_t), &
        c_loc(row), c_sizeof(row), count))
    if (any(row /= temperature(:, 3))) error stop "the column is another one"
    call check(terrace_close(store))
    print "(a, i0, a)", "climate/t2m: ", field_bytes, " bytes"
end program
